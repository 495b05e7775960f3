#include "common/base/last_words.h"

#include <glib.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <new>
#include <system_error>

#include <unistd.h>

namespace
{

void say(const char *text)
{
    // There is nobody left to tell if this fails.
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        return;
}

// Neither allocates nor takes a lock, because other threads may hold any lock.
[[noreturn]] void end(const char *library, const char *reason)
{
    say("bindery: ");
    say(library);
    say(": ");
    say(reason);
    say("; it cannot go on (give it more memory, or fewer --threads)\n");
    _exit(2);
}

// g_error(), which GLib calls when it has no memory or no thread, calls this and then aborts.
void on_glib_log(const gchar *domain, GLogLevelFlags level, const gchar *message, gpointer)
{
    if (level & G_LOG_LEVEL_ERROR)
        end("GLib", message ? message : "out of memory");
    g_log_default_handler(domain, level, message, nullptr);
}

std::terminate_handler usual_end;

void on_terminate()
{
    if (std::exception_ptr thrown = std::current_exception()) {
        try {
            std::rethrow_exception(thrown);
        } catch (const std::bad_alloc &) {
            end("a library", "out of memory");
        } catch (const std::system_error &error) {  // such as a thread that cannot be started
            end("a library", error.what());
        } catch (...) {
        }
    }
    usual_end();
}

// Handles signals of libraries that end the program without a message right after an allocation
// has failed. A library that brings its own C++ runtime crashes then, before it can print one.
void on_signal(int number)
{
    if (errno == ENOMEM)
        end("a library", "out of memory");
    signal(number, SIG_DFL);
    raise(number);
}

}  // namespace

void bd_last_words_prepare(void)
{
    g_log_set_default_handler(on_glib_log, nullptr);
    usual_end = std::set_terminate(on_terminate);
    for (const int number : {SIGABRT, SIGTRAP, SIGSEGV}) {
        struct sigaction action = {};
        if (sigaction(number, nullptr, &action) != 0 || action.sa_handler != SIG_DFL)
            continue;  // a sanitizer's
        action.sa_handler = on_signal;
        sigaction(number, &action, nullptr);
    }
}
