#include "common/base/folder.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include "common/base/file.h"
#include "tests/unit/temporary_folder.h"

static void a_folder_is_made_once(void **state)
{
    (void)state;
    bd_error err = {0};
    int n_made = 7;
    assert_int_equal(bd_folder_make("out", &n_made, &err), BD_OK);
    assert_int_equal(n_made, 1);
    write_text("out/a", "kept");
    assert_int_equal(bd_folder_make("out", &n_made, &err), BD_OK);
    assert_int_equal(n_made, 0);
    assert_file_holds("out/a", "kept");
}

static void folders_above_are_made_too(void **state)
{
    (void)state;
    bd_error err = {0};
    int n_made = 7;
    assert_int_equal(bd_folder_make("a//b/c/", &n_made, &err), BD_OK);
    assert_int_equal(n_made, 3);
    assert_int_equal(access("a/b/c", F_OK), 0);
}

// The last of these names is too long for any file system.
static void no_folder_stays_if_not_all_can_be_made(void **state)
{
    (void)state;
    bd_error err = {0};
    int n_made = 7;
    char path[400] = "x/y/";
    memset(path + strlen(path), 'n', 300);
    assert_int_equal(bd_folder_make(path, &n_made, &err), BD_ERR_IO);
    assert_int_equal(n_made, 0);
    assert_non_null(strstr(err.message, "cannot create the folder 'x/y/nnn"));
    assert_int_not_equal(access("x", F_OK), 0);
    write_text("file", "");
    assert_int_equal(bd_folder_make("file/out", &n_made, &err), BD_ERR_IO);
    assert_string_equal(err.message, "cannot create the folder 'file/out': Not a directory");
}

static void a_refusal_takes_back_what_was_made(void **state)
{
    (void)state;
    bd_error err = {0};
    int n_made, lock, nothing;
    assert_int_equal(bd_folder_make("above", &nothing, &err), BD_OK);
    assert_int_equal(bd_folder_make("above/b/c", &n_made, &err), BD_OK);
    assert_int_equal(bd_folder_lock(&lock, "above/b/c", BD_LOCK_EXCLUSIVE, "using", &err),
                     BD_OK);
    bd_folder_withdraw("above/b/c", n_made, lock);
    assert_int_not_equal(access("above/b", F_OK), 0);
    assert_int_equal(access("above", F_OK), 0);
}

static void a_refusal_keeps_what_others_have(void **state)
{
    (void)state;
    bd_error err = {0};
    int n_made, lock;
    assert_int_equal(bd_folder_make("b/c", &n_made, &err), BD_OK);
    write_text("b/other", "kept");
    assert_int_equal(bd_folder_lock(&lock, "b/c", BD_LOCK_SHARED, "using", &err), BD_OK);
    bd_folder_withdraw("b/c", n_made, -1);  // another process, which did not get the lock
    assert_int_equal(access("b/c/" BD_LOCK_NAME, F_OK), 0);
    bd_folder_withdraw("b/c", n_made, lock);
    assert_int_not_equal(access("b/c", F_OK), 0);
    assert_file_holds("b/other", "kept");
    bd_folder_withdraw("b", 0, -1);
    assert_file_holds("b/other", "kept");
}

// ---- Locks ------------------------------------------------------------------------

// An order to another process about the folder "out".
typedef struct order {
    enum { EXCLUDE, SHARE, BE_ALONE, CLAIM, END } what;
    int64_t n;  // the claim's number
} order;

typedef struct process {
    pid_t id;
    int orders, answers;
} process;

// Answers to an order.
enum { REFUSED = 0, GRANTED = 1, FAILED = 2 };

static char obey(const order *given, int *lock)
{
    bool granted = false;
    bd_error err = {0};
    bd_status status = BD_OK;
    if (given->what == BE_ALONE)
        status = bd_folder_lock_alone(*lock, &granted, &err);
    else if (given->what == CLAIM)
        status = bd_folder_claim(*lock, given->n, &granted, &err);
    else {
        const bd_lock_mode mode = given->what == SHARE ? BD_LOCK_SHARED : BD_LOCK_EXCLUSIVE;
        status = bd_folder_lock(lock, "out", mode, "using", &err);
        granted = status == BD_OK;
        const bool refused = status == BD_ERR_IO && *lock == -1 &&
                             strcmp(err.message, "another process is using 'out'") == 0;
        return granted && *lock >= 0 ? GRANTED : refused ? REFUSED : FAILED;
    }
    return status == BD_OK ? (char)granted : FAILED;
}

// A process that executes orders until it is told to end.
static process begin_process(void)
{
    int orders[2], answers[2];
    assert_int_equal(pipe(orders), 0);
    assert_int_equal(pipe(answers), 0);
    const pid_t id = fork();
    assert_true(id >= 0);
    if (id == 0) {
        int lock = -1;
        order given;
        alarm(100);  // a test that failed does not tell it to end
        while (read(orders[0], &given, sizeof given) == sizeof given && given.what != END) {
            const char answer = obey(&given, &lock);
            if (write(answers[1], &answer, 1) != 1)
                break;
        }
        _exit(0);
    }
    close(orders[0]);
    close(answers[1]);
    return (process){id, orders[1], answers[0]};
}

static void tell(const process *p, int what, int64_t n)
{
    const order given = {what, n};
    assert_int_equal(write(p->orders, &given, sizeof given), sizeof given);
}

static int answer_of(const process *p)
{
    char answer = FAILED;
    assert_int_equal(read(p->answers, &answer, 1), 1);
    return answer;
}

static int ask(const process *p, int what)
{
    tell(p, what, 0);
    return answer_of(p);
}

static int ask_to_claim(const process *p, int64_t n)
{
    tell(p, CLAIM, n);
    return answer_of(p);
}

// Waits until the process has ended, by itself or by SIGKILL.
static void end_process(process *p, bool kill_it)
{
    int result;
    if (kill_it)
        assert_int_equal(kill(p->id, SIGKILL), 0);
    else
        tell(p, END, 0);
    assert_int_equal(waitpid(p->id, &result, 0), p->id);
    assert_true(kill_it ? WIFSIGNALED(result) : WIFEXITED(result));
    close(p->orders);
    close(p->answers);
}

// Tells whether another process can lock the folder; it then unlocks it.
static int lock_elsewhere(int what)
{
    process other = begin_process();
    const int answer = ask(&other, what);
    end_process(&other, false);
    return answer;
}

static void a_lock_keeps_other_processes_out_until_it_is_closed(void **state)
{
    (void)state;
    int lock;
    add_folder("out");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(bd_folder_lock(&lock, "out", BD_LOCK_EXCLUSIVE, "using", NULL), BD_OK);
        assert_int_equal(lock_elsewhere(EXCLUDE), REFUSED);
        assert_int_equal(close(lock), 0);
        assert_int_equal(lock_elsewhere(EXCLUDE), GRANTED);
        assert_int_equal(lock_elsewhere(SHARE), GRANTED);
    }
    assert_int_equal(count_entries("out"), 1);  // the next process finds it there
    assert_file_holds("out/" BD_LOCK_NAME, "");
}

// This would happen if the lock belonged to the process and not to the descriptor.
static void a_lock_does_not_end_with_another_descriptor_of_its_file(void **state)
{
    (void)state;
    int lock, other;
    size_t n;
    add_folder("out");
    assert_int_equal(bd_folder_lock(&lock, "out", BD_LOCK_EXCLUSIVE, "using", NULL), BD_OK);
    free(read_file("out/" BD_LOCK_NAME, &n));
    assert_int_equal(bd_folder_lock(&other, "out", BD_LOCK_EXCLUSIVE, "using", NULL),
                     BD_ERR_IO);
    assert_int_equal(other, -1);
    assert_int_equal(lock_elsewhere(EXCLUDE), REFUSED);
    assert_int_equal(close(lock), 0);
}

static void those_who_share_keep_out_only_those_who_do_not(void **state)
{
    (void)state;
    add_folder("out");
    process first = begin_process(), second = begin_process();
    assert_int_equal(ask(&first, SHARE), GRANTED);
    assert_int_equal(ask(&second, SHARE), GRANTED);
    assert_int_equal(lock_elsewhere(EXCLUDE), REFUSED);
    end_process(&first, false);
    assert_int_equal(lock_elsewhere(EXCLUDE), REFUSED);
    assert_int_equal(lock_elsewhere(SHARE), GRANTED);
    end_process(&second, true);
    assert_int_equal(lock_elsewhere(EXCLUDE), GRANTED);
}

// A late rank arrives while the last one publishes.
static void whoever_wants_to_share_waits_for_the_one_who_does_not(void **state)
{
    (void)state;
    int lock;
    add_folder("out");
    process late = begin_process();  // closed first: the child would inherit the lock
    assert_int_equal(bd_folder_lock(&lock, "out", BD_LOCK_EXCLUSIVE, "using", NULL), BD_OK);
    tell(&late, SHARE, 0);
    struct pollfd answer = {.fd = late.answers, .events = POLLIN};
    assert_int_equal(poll(&answer, 1, 100), 0);
    assert_int_equal(close(lock), 0);
    assert_int_equal(answer_of(&late), GRANTED);
    assert_int_equal(lock_elsewhere(EXCLUDE), REFUSED);
    end_process(&late, false);
}

enum { N_SHARERS = 4 };

static void the_last_of_several_sharers_is_alone(void **state)
{
    (void)state;
    add_folder("out");
    for (int first = 0; first < N_SHARERS; first++) {
        process sharers[N_SHARERS];
        for (int i = 0; i < N_SHARERS; i++) {
            sharers[i] = begin_process();
            assert_int_equal(ask(&sharers[i], SHARE), GRANTED);
        }
        for (int i = 0; i < N_SHARERS; i++)
            assert_int_equal(ask(&sharers[(first + i) % N_SHARERS], BE_ALONE),
                             i == N_SHARERS - 1 ? GRANTED : REFUSED);
        assert_int_equal(lock_elsewhere(EXCLUDE), REFUSED);
        assert_int_equal(ask(&sharers[first], BE_ALONE), REFUSED);
        for (int i = 0; i < N_SHARERS; i++)
            end_process(&sharers[i], i % 2 == 0);
    }
}

static void a_sharer_that_was_killed_is_not_waited_for(void **state)
{
    (void)state;
    add_folder("out");
    process left = begin_process(), killed = begin_process();
    assert_int_equal(ask(&left, SHARE), GRANTED);
    assert_int_equal(ask(&killed, SHARE), GRANTED);
    assert_int_equal(ask(&left, BE_ALONE), REFUSED);
    end_process(&killed, true);
    assert_int_equal(ask(&left, BE_ALONE), GRANTED);
    end_process(&left, false);
}

static void one_of_several_simultaneous_sharers_is_alone(void **state)
{
    (void)state;
    add_folder("out");
    for (int round = 0; round < 10; round++) {
        process sharers[N_SHARERS];
        int n_alone = 0;
        for (int i = 0; i < N_SHARERS; i++) {
            sharers[i] = begin_process();
            assert_int_equal(ask(&sharers[i], SHARE), GRANTED);
        }
        for (int i = 0; i < N_SHARERS; i++)
            tell(&sharers[i], BE_ALONE, 0);
        for (int i = 0; i < N_SHARERS; i++) {
            const int answer = answer_of(&sharers[i]);
            assert_int_not_equal(answer, FAILED);
            n_alone += answer == GRANTED;
        }
        assert_int_equal(n_alone, 1);
        for (int i = 0; i < N_SHARERS; i++)
            end_process(&sharers[i], false);
    }
}

// ---- Claims -----------------------------------------------------------------------

static void a_piece_of_work_is_claimed_by_one_process(void **state)
{
    (void)state;
    static const int64_t pieces[] = {0, 1, 2, 31, 33, INT64_C(1) << 40};
    enum { N_PIECES = sizeof pieces / sizeof *pieces };
    add_folder("out");
    process one = begin_process(), other = begin_process();
    assert_int_equal(ask(&one, SHARE), GRANTED);
    assert_int_equal(ask(&other, SHARE), GRANTED);
    for (int i = 0; i < N_PIECES; i++)
        assert_int_equal(ask_to_claim(i % 2 ? &one : &other, pieces[i]), GRANTED);
    for (int i = 0; i < N_PIECES; i++) {
        assert_int_equal(ask_to_claim(i % 2 ? &other : &one, pieces[i]), REFUSED);
        assert_int_equal(ask_to_claim(i % 2 ? &one : &other, pieces[i]), GRANTED);
    }
    // Neither blocks the other: the folder's lock is not a claim.
    assert_int_equal(ask(&one, BE_ALONE), REFUSED);
    assert_int_equal(ask(&other, BE_ALONE), GRANTED);
    assert_int_equal(ask_to_claim(&other, 1), REFUSED);
    assert_int_equal(ask_to_claim(&one, 0), REFUSED);
    end_process(&one, false);
    end_process(&other, false);
}

static void claims_end_with_their_process_however_it_ends(void **state)
{
    (void)state;
    add_folder("out");
    process left = begin_process();
    assert_int_equal(ask(&left, SHARE), GRANTED);
    for (int killed = 0; killed < 2; killed++) {
        process other = begin_process();
        assert_int_equal(ask(&other, SHARE), GRANTED);
        for (int64_t n = 2 * killed; n < 2 * killed + 2; n++) {
            assert_int_equal(ask_to_claim(&other, n), GRANTED);
            assert_int_equal(ask_to_claim(&left, n), REFUSED);
        }
        end_process(&other, killed);
        for (int64_t n = 2 * killed; n < 2 * killed + 2; n++)
            assert_int_equal(ask_to_claim(&left, n), GRANTED);
    }
    end_process(&left, true);
}

static void one_of_several_simultaneous_claims_succeeds(void **state)
{
    (void)state;
    process sharers[N_SHARERS];
    add_folder("out");
    for (int i = 0; i < N_SHARERS; i++) {
        sharers[i] = begin_process();
        assert_int_equal(ask(&sharers[i], SHARE), GRANTED);
    }
    for (int64_t n = 0; n < 100; n++) {
        int n_granted = 0;
        for (int i = 0; i < N_SHARERS; i++)
            tell(&sharers[i], CLAIM, n);
        for (int i = 0; i < N_SHARERS; i++) {
            const int answer = answer_of(&sharers[i]);
            assert_int_not_equal(answer, FAILED);
            n_granted += answer == GRANTED;
        }
        assert_int_equal(n_granted, 1);
    }
    for (int i = 0; i < N_SHARERS; i++)
        end_process(&sharers[i], false);
}

static void only_a_folder_is_locked(void **state)
{
    (void)state;
    int lock = 5;
    bd_error err = {0};
    assert_int_equal(bd_folder_lock(&lock, "out", BD_LOCK_SHARED, "using", &err), BD_ERR_IO);
    assert_string_equal(err.message, "cannot open 'out/.lock': No such file or directory");
    assert_int_equal(lock, -1);
    lock = 5;
    write_text("out", "a file");
    assert_int_equal(bd_folder_lock(&lock, "out", BD_LOCK_EXCLUSIVE, "using", &err), BD_ERR_IO);
    assert_string_equal(err.message, "cannot open 'out/.lock': Not a directory");
    assert_int_equal(lock, -1);
}

static void a_failed_lock_is_an_error_and_not_a_refusal(void **state)
{
    (void)state;
    bool granted = true;
    bd_error err = {0};
    assert_int_equal(bd_folder_lock_alone(-1, &granted, &err), BD_ERR_IO);
    assert_string_equal(err.message, "cannot lock '.lock': Bad file descriptor");
    assert_false(granted);
    granted = true;
    assert_int_equal(bd_folder_claim(-1, 7, &granted, &err), BD_ERR_IO);
    assert_string_equal(err.message, "cannot lock '.lock': Bad file descriptor");
    assert_false(granted);
}

// ---- Entries ----------------------------------------------------------------------

static bd_status count_visit(void *context, const char *folder, const char *name, bd_error *err)
{
    int *counts = context;
    assert_string_equal(folder, "out");
    if (strcmp(name, "stop") == 0)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "stopped");
    counts[name[0] - 'a']++;
    return BD_OK;
}

static void every_entry_is_visited_once(void **state)
{
    (void)state;
    int counts[3] = {0};
    bd_error err = {0};
    add_folder("out");
    assert_int_equal(bd_folder_visit("out", count_visit, counts, &err), BD_OK);
    write_text("out/a", "");
    write_text("out/b", "");
    add_folder("out/c");
    assert_int_equal(bd_folder_visit("out", count_visit, counts, &err), BD_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(counts[i], 1);
    write_text("out/stop", "");
    assert_int_equal(bd_folder_visit("out", count_visit, counts, &err), BD_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "stopped");
    assert_int_equal(bd_folder_visit("absent", count_visit, counts, &err), BD_ERR_IO);
    assert_string_equal(err.message,
                        "cannot read the folder 'absent': No such file or directory");
}

static bool is_json_or_arrow(const char *name)
{
    return strcmp(name, "a.json") == 0 || strcmp(name, "b.arrow") == 0;
}

static void only_our_pending_files_are_removed(void **state)
{
    (void)state;
    bd_error err = {0};
    bd_pending pending;
    add_folder("out");
    assert_int_equal(bd_pending_begin(&pending, "out", "a.json", &err), BD_OK);
    write_text("out/.b.arrow.01ab23cd.part", "half");
    write_text("out/a.json", "kept");
    write_text("out/" BD_LOCK_NAME, "");
    write_text("out/.hidden", "kept");
    write_text("out/c.part", "kept");
    write_text("out/.film.mkv.01ab23cd.part", "kept");
    assert_int_equal(bd_folder_remove_pending("out", is_json_or_arrow, &err), BD_OK);
    assert_int_equal(count_entries("out"), 5);
    assert_true(exists("out/.film.mkv.01ab23cd.part"));
    assert_true(exists("out/a.json") && exists("out/.hidden") && exists("out/c.part"));
    assert_true(exists("out/" BD_LOCK_NAME));
    bd_pending_discard(&pending);
}

static void removing_what_is_not_there_is_fine(void **state)
{
    (void)state;
    bd_error err = {0};
    add_folder("out");
    add_folder("out/folder");
    write_text("out/a", "");
    assert_int_equal(bd_folder_remove("out", "a", &err), BD_OK);
    assert_false(exists("out/a"));
    assert_int_equal(bd_folder_remove("out", "a", &err), BD_OK);
    assert_int_equal(bd_folder_remove("out", "folder", &err), BD_ERR_IO);
    assert_non_null(strstr(err.message, "cannot remove 'out/folder': "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(a_folder_is_made_once),
        test_inside_folder(folders_above_are_made_too),
        test_inside_folder(no_folder_stays_if_not_all_can_be_made),
        test_inside_folder(a_refusal_takes_back_what_was_made),
        test_inside_folder(a_refusal_keeps_what_others_have),
        test_inside_folder(a_lock_keeps_other_processes_out_until_it_is_closed),
        test_inside_folder(a_lock_does_not_end_with_another_descriptor_of_its_file),
        test_inside_folder(those_who_share_keep_out_only_those_who_do_not),
        test_inside_folder(whoever_wants_to_share_waits_for_the_one_who_does_not),
        test_inside_folder(the_last_of_several_sharers_is_alone),
        test_inside_folder(a_sharer_that_was_killed_is_not_waited_for),
        test_inside_folder(one_of_several_simultaneous_sharers_is_alone),
        test_inside_folder(a_piece_of_work_is_claimed_by_one_process),
        test_inside_folder(claims_end_with_their_process_however_it_ends),
        test_inside_folder(one_of_several_simultaneous_claims_succeeds),
        test_inside_folder(only_a_folder_is_locked),
        test_inside_folder(a_failed_lock_is_an_error_and_not_a_refusal),
        test_inside_folder(every_entry_is_visited_once),
        test_inside_folder(only_our_pending_files_are_removed),
        test_inside_folder(removing_what_is_not_there_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
