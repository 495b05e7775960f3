#include "common/chat/chat_format.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/memory.h"
#include "common/chat/built_in.h"

BD_ENUM_NAMES(bd_turn_ends, BD_TURN_ENDS);

enum { MAX_FORMAT_BYTES = 1 << 20 };

static const char system_role[] = "system", user_role[] = "user",
                  assistant_role[] = "assistant";

// Where a system message goes.
#define SYSTEM_PLACES(X)               \
    X(SYSTEM_TURN, "turn")             \
    X(SYSTEM_FIRST_USER, "first-user") \
    X(SYSTEM_LAST_USER, "last-user")
typedef enum system_place { SYSTEM_PLACES(BD_ENUM_VALUE_) } system_place;
static const char *const system_place_names[] = {SYSTEM_PLACES(BD_ENUM_NAME_) NULL};

// Texts and special tokens that follow each other.
typedef struct piece {
    const char *text;  // borrowed from the format's JSON; the token's name
    bool is_token;
    uint32_t id;  // of a token, once it was looked up
} piece;

typedef struct pieces {
    piece *items;  // [n], owned
    size_t n;
} pieces;

typedef struct role {
    const char *name;  // borrowed from the format's JSON
    pieces before, start, end, after;
    pieces
        between;  // two turns of this role that follow each other, instead of end, after, before
    bool has_between;
    bool trained;
    bool trimmed;
} role;

struct bd_chat_format {
    bd_json *json;     // owned
    const char *name;  // this and other texts are borrowed from it
    pieces begin;
    role *roles;  // [n_roles], owned
    size_t n_roles;
    system_place system;
    bool trims_system;
    const char *default_system;  // NULL: none
    const char *system_between;  // the system message and the user's that it is put into
    bool has_calls;
    pieces call_before, call_after, call_between;
    bool trains_separator;
};

// ---- Roles ---------------------------------------------------------------------------------

static bool view_equals(bd_text_view view, const char *text)
{
    return view.size_bytes == strlen(text) && memcmp(view.data, text, view.size_bytes) == 0;
}

static role *find_role(const bd_chat_format *format, bd_text_view name)
{
    for (size_t i = 0; i < format->n_roles; i++)
        if (view_equals(name, format->roles[i].name))
            return &format->roles[i];
    return NULL;
}

// "system, user, assistant", for messages.
typedef struct role_list {
    char text[160];
} role_list;

static role_list list_roles(const bd_chat_format *format)
{
    role_list list = {""};
    size_t n = 0;
    for (size_t i = 0; i < format->n_roles; i++) {
        const size_t n_name = strlen(format->roles[i].name);
        if (n + n_name + sizeof ", …" >= sizeof list.text) {
            strcpy(list.text + n, ", …");
            break;
        }
        n += (size_t)sprintf(list.text + n, "%s%s", i > 0 ? ", " : "", format->roles[i].name);
    }
    return list;
}

// ---- Reading -------------------------------------------------------------------------------

// Refuses keys that are not among `keys`, which NULL ends: a misspelt one would go unnoticed.
static bd_status check_keys(const bd_json *object, const char *const *keys, bd_error *err)
{
    for (bd_json_member m = bd_json_first(object); m.key; m = bd_json_next(object, m)) {
        const char *const *key = keys;
        while (*key && strcmp(*key, m.key) != 0)
            key++;
        if (!*key)
            return bd_fail(err, BD_ERR_FORMAT, "unknown key '%s'", m.key);
    }
    return BD_OK;
}

static bd_status read_piece(piece *p, const bd_json *json, bd_error *err)
{
    static const char *const keys[] = {"text", "token", NULL};
    BD_TRY(check_keys(json, keys, err));
    p->is_token = !bd_json_is_null(json, "token");
    if (p->is_token != bd_json_is_null(json, "text"))
        return bd_fail(err, BD_ERR_FORMAT, "a piece has a text or a token");
    BD_TRY(bd_json_get_string(json, p->is_token ? "token" : "text", &p->text, err));
    if (*p->text == '\0')
        return bd_fail(err, BD_ERR_FORMAT, "a piece is empty");
    return BD_OK;
}

// The pieces under `key`; none if there is no such key.
static bd_status read_pieces(pieces *list, const bd_json *object, const char *key,
                             bd_error *err)
{
    const bd_json *array;
    if (bd_json_is_null(object, key))
        return BD_OK;
    BD_TRY(bd_json_get_array(object, key, &array, err));
    list->items = calloc(bd_json_length(array) + 1, sizeof *list->items);
    if (!list->items)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a chat format");
    for (; list->n < bd_json_length(array); list->n++) {
        const bd_status status =
            read_piece(&list->items[list->n], bd_json_at(array, list->n), err);
        if (status != BD_OK)
            return bd_error_prefix(err, status, "'%s[%zu]'", key, list->n);
    }
    return BD_OK;
}

static bd_status read_role(role *r, const bd_json *json, bd_error *err)
{
    static const char *const keys[] = {"before", "start", "end", "after", "between", NULL};
    BD_TRY(check_keys(json, keys, err));
    BD_TRY(read_pieces(&r->before, json, "before", err));
    BD_TRY(read_pieces(&r->start, json, "start", err));
    BD_TRY(read_pieces(&r->end, json, "end", err));
    BD_TRY(read_pieces(&r->after, json, "after", err));
    r->has_between = !bd_json_is_null(json, "between");
    return read_pieces(&r->between, json, "between", err);
}

static bd_status read_roles(bd_chat_format *format, bd_error *err)
{
    const bd_json *roles;
    size_t n = 0;
    BD_TRY(bd_json_get_object(format->json, "roles", &roles, err));
    for (bd_json_member m = bd_json_first(roles); m.key; m = bd_json_next(roles, m))
        n++;
    if (n == 0)
        return bd_fail(err, BD_ERR_FORMAT, "'roles' is empty");
    format->roles = calloc(n, sizeof *format->roles);
    if (!format->roles)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a chat format");
    for (bd_json_member m = bd_json_first(roles); m.key; m = bd_json_next(roles, m)) {
        role *r = &format->roles[format->n_roles++];
        const bd_json *json;
        r->name = m.key;
        if (*m.key == '\0' || strchr(m.key, ','))
            return bd_fail(err, BD_ERR_FORMAT, "'%s' cannot be the name of a role", m.key);
        BD_TRY(bd_json_get_object(roles, m.key, &json, err));
        const bd_status status = read_role(r, json, err);
        if (status != BD_OK)
            return bd_error_prefix(err, status, "'roles.%s'", m.key);
    }
    return BD_OK;
}

// Calls `mark` for each of the roles that the array under `key` names, if there is one.
static bd_status read_role_names(bd_chat_format *format, const char *key,
                                 bool (*mark)(bd_chat_format *format, const char *name),
                                 bd_error *err)
{
    const bd_json *array;
    if (bd_json_is_null(format->json, key))
        return BD_OK;
    BD_TRY(bd_json_get_array(format->json, key, &array, err));
    for (size_t i = 0; i < bd_json_length(array); i++) {
        const char *name;
        BD_TRY(bd_json_as_string(bd_json_at(array, i), &name, err));
        if (!mark(format, name))
            return bd_fail(err, BD_ERR_FORMAT, "'%s' names the role '%s', which is not there",
                           key, name);
    }
    return BD_OK;
}

static bool mark_trained(bd_chat_format *format, const char *name)
{
    role *r = find_role(format, (bd_text_view){name, strlen(name)});
    if (r)
        r->trained = true;
    return r;
}

static bool mark_trimmed(bd_chat_format *format, const char *name)
{
    role *r = find_role(format, (bd_text_view){name, strlen(name)});
    if (r)
        r->trimmed = true;
    if (strcmp(name, system_role) == 0)
        format->trims_system = true;
    return r || strcmp(name, system_role) == 0;
}

static bd_status read_calls(bd_chat_format *format, bd_error *err)
{
    static const char *const keys[] = {"before", "after", "between", NULL};
    const bd_json *calls;
    format->has_calls = !bd_json_is_null(format->json, "tool_calls");
    if (!format->has_calls)
        return BD_OK;
    BD_TRY(bd_json_get_object(format->json, "tool_calls", &calls, err));
    bd_status status = check_keys(calls, keys, err);
    if (status == BD_OK)
        status = read_pieces(&format->call_before, calls, "before", err);
    if (status == BD_OK)
        status = read_pieces(&format->call_after, calls, "after", err);
    if (status == BD_OK)
        status = read_pieces(&format->call_between, calls, "between", err);
    return status == BD_OK ? BD_OK : bd_error_prefix(err, status, "'tool_calls'");
}

static bd_status read_system(bd_chat_format *format, bd_error *err)
{
    const bd_json *json = format->json;
    const bool has_role = find_role(format, (bd_text_view){system_role, strlen(system_role)});
    int place = SYSTEM_TURN;
    if (!bd_json_is_null(json, "system"))
        BD_TRY(bd_json_get_word(json, "system", system_place_names, &place, err));
    format->system = (system_place)place;
    if (!bd_json_is_null(json, "default_system"))
        BD_TRY(bd_json_get_string(json, "default_system", &format->default_system, err));
    format->system_between = "";
    if (!bd_json_is_null(json, "system_between"))
        BD_TRY(bd_json_get_string(json, "system_between", &format->system_between, err));
    if (place == SYSTEM_TURN && !bd_json_is_null(json, "system_between"))
        return bd_fail(err, BD_ERR_FORMAT, "'system_between' goes with 'system' %s or %s",
                       system_place_names[SYSTEM_FIRST_USER],
                       system_place_names[SYSTEM_LAST_USER]);
    if (place == SYSTEM_TURN && format->default_system && !has_role)
        return bd_fail(err, BD_ERR_FORMAT, "'default_system' needs the role 'system'");
    if (place != SYSTEM_TURN && has_role)
        return bd_fail(err, BD_ERR_FORMAT,
                       "the role 'system' has no turn of its own with 'system' %s",
                       system_place_names[place]);
    if (place != SYSTEM_TURN &&
        !find_role(format, (bd_text_view){user_role, strlen(user_role)}))
        return bd_fail(err, BD_ERR_FORMAT, "'system' %s needs the role 'user'",
                       system_place_names[place]);
    return BD_OK;
}

static bd_status read_format(bd_chat_format *format, bd_error *err)
{
    static const char *const keys[] = {
        "chat_format", "name",           "comment",    "begin",
        "roles",       "train",          "system",     "default_system",
        "trim",        "system_between", "tool_calls", "train_separator",
        NULL};
    const bd_json *json = format->json;
    int64_t version;
    BD_TRY(bd_json_get_integer(json, "chat_format", 1, 1, &version, err));
    BD_TRY(check_keys(json, keys, err));
    BD_TRY(bd_json_get_string(json, "name", &format->name, err));
    BD_TRY(read_pieces(&format->begin, json, "begin", err));
    BD_TRY(read_roles(format, err));
    const bd_json *train;
    BD_TRY(bd_json_get_array(json, "train", &train, err));
    if (bd_json_length(train) == 0)
        return bd_fail(err, BD_ERR_FORMAT, "'train' names no role");
    BD_TRY(read_role_names(format, "train", mark_trained, err));
    BD_TRY(read_role_names(format, "trim", mark_trimmed, err));
    BD_TRY(read_system(format, err));
    if (!bd_json_is_null(json, "train_separator"))
        BD_TRY(bd_json_get_bool(json, "train_separator", &format->trains_separator, err));
    return read_calls(format, err);
}

bd_status bd_chat_format_from_json(bd_chat_format **out, const bd_json *json, bd_error *err)
{
    bd_chat_format *format = calloc(1, sizeof *format);
    *out = NULL;
    if (!format)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a chat format");
    format->json = bd_json_share(json);
    const bd_status status = read_format(format, err);
    if (status == BD_OK)
        *out = format;
    else
        bd_chat_format_free(format);
    return status;
}

static bd_status fail_unknown_format(const char *name, bd_error *err)
{
    char names[160] = "";
    for (size_t i = 0, n = 0; bd_built_in_chat_formats[i] && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i > 0 ? ", " : "",
                              bd_built_in_chat_formats[i]);
    return bd_fail(
        err, BD_ERR_ARGUMENT,
        "no chat format '%.60s': it is neither built in (%s) nor a file (docs/pack.md says how "
        "to write one). A template that no such file can say is yours to render: give each "
        "conversation as a list of {\"text\": …, \"train\": true or false} and "
        "{\"token\": …} with --segments-field",
        name, names);
}

bd_status bd_chat_format_open(bd_chat_format **format, const char *name_or_file, bd_error *err)
{
    bd_json *json = NULL;
    size_t i = 0;
    *format = NULL;
    while (bd_built_in_chat_formats[i] &&
           strcmp(bd_built_in_chat_formats[i], name_or_file) != 0)
        i++;
    const bool is_built_in = bd_built_in_chat_formats[i];
    if (!is_built_in && access(name_or_file, F_OK) != 0)
        return fail_unknown_format(name_or_file, err);
    bd_status status =
        is_built_in ? bd_json_parse(bd_built_in_chat_format_texts[i].text,
                                    bd_built_in_chat_format_texts[i].size_bytes, &json, err)
                    : bd_json_read_file(name_or_file, MAX_FORMAT_BYTES, &json, err);
    if (status != BD_OK)
        return status;
    status = bd_chat_format_from_json(format, json, err);
    if (status == BD_ERR_FORMAT)
        bd_error_prefix(err, status, "cannot use the chat format '%s'", name_or_file);
    bd_json_free(json);
    return status;
}

const bd_json *bd_chat_format_json(const bd_chat_format *format)
{
    return format->json;
}

static pieces *role_pieces(role *r, int i)
{
    pieces *const all[] = {&r->before, &r->start, &r->end, &r->after, &r->between, NULL};
    return all[i];
}

void bd_chat_format_free(bd_chat_format *format)
{
    if (!format)
        return;
    for (size_t i = 0; i < format->n_roles; i++)
        for (int k = 0; role_pieces(&format->roles[i], k); k++)
            free(role_pieces(&format->roles[i], k)->items);
    free(format->roles);
    free(format->begin.items);
    free(format->call_before.items);
    free(format->call_after.items);
    free(format->call_between.items);
    bd_json_free(format->json);
    free(format);
}

// ---- Settings ------------------------------------------------------------------------------

bd_status bd_chat_format_train_roles(bd_chat_format *format, const char *roles, bd_error *err)
{
    for (size_t i = 0; i < format->n_roles; i++)
        format->roles[i].trained = false;
    for (const char *name = roles;; name++) {
        const size_t n = strcspn(name, ",");
        role *r = find_role(format, (bd_text_view){name, n});
        if (!r)
            return bd_fail(err, BD_ERR_ARGUMENT,
                           "chat format '%s' has no role '%.*s'; it has %s", format->name,
                           (int)(n < 60 ? n : 60), name, list_roles(format).text);
        r->trained = true;
        name += n;
        if (*name == '\0')
            return BD_OK;
    }
}

bd_json *bd_chat_format_trained_roles(const bd_chat_format *format)
{
    bd_json *names = bd_json_array();
    for (size_t i = 0; i < format->n_roles; i++)
        if (format->roles[i].trained)
            bd_json_append(names, bd_json_string(format->roles[i].name));
    return names;
}

static bd_status find_tokens(const bd_chat_format *format, pieces *list,
                             const bd_tokenizer *tokenizer, const char *tokenizer_name,
                             bd_error *err)
{
    for (size_t i = 0; i < list->n; i++) {
        piece *p = &list->items[i];
        if (p->is_token &&
            !tokenizer->kind->find_token(tokenizer, p->text, strlen(p->text), &p->id))
            return bd_fail(err, BD_ERR_ARGUMENT,
                           "chat format '%s' needs the special token '%s', which tokenizer "
                           "'%s' does not have",
                           format->name, p->text, tokenizer_name);
    }
    return BD_OK;
}

bd_status bd_chat_format_find_tokens(bd_chat_format *format, const bd_tokenizer *tokenizer,
                                     const char *tokenizer_name, bd_error *err)
{
    pieces *const lists[] = {&format->begin, &format->call_before, &format->call_after,
                             &format->call_between};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        BD_TRY(find_tokens(format, lists[i], tokenizer, tokenizer_name, err));
    for (size_t i = 0; i < format->n_roles; i++)
        for (int k = 0; role_pieces(&format->roles[i], k); k++)
            BD_TRY(find_tokens(format, role_pieces(&format->roles[i], k), tokenizer,
                               tokenizer_name, err));
    return BD_OK;
}

// ---- Rendering -----------------------------------------------------------------------------

static bd_status add_pieces(bd_spans *spans, const pieces *list, bool trained, bd_error *err)
{
    for (size_t i = 0; i < list->n; i++) {
        const piece *p = &list->items[i];
        BD_TRY(p->is_token ? bd_spans_add_token(spans, p->id, trained, err)
                           : bd_spans_add_text(spans, p->text, strlen(p->text), trained, err));
    }
    return BD_OK;
}

static bd_status add_view(bd_spans *spans, bd_text_view view, bool trained, bd_error *err)
{
    return bd_spans_add_text(spans, view.data, view.size_bytes, trained, err);
}

// The size of the white space, by the rule of Python's str.strip() and so of Jinja's trim, that
// begins at s[0]; 0 if there is none.
static size_t space_bytes(const char *s, size_t n)
{
    static const char *const wide[] = {"\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80",
                                       "\xE2\x80\xA8", "\xE2\x80\xA9", "\xE2\x80\xAF",
                                       "\xE2\x81\x9F", "\xE3\x80\x80"};
    if (n > 0 && ((s[0] >= '\t' && s[0] <= '\r') || (s[0] >= 0x1C && s[0] <= ' ')))
        return 1;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        if (n >= strlen(wide[i]) && memcmp(s, wide[i], strlen(wide[i])) == 0)
            return strlen(wide[i]);
    // U+2000 to U+200A
    const bool is_quad = n >= 3 && memcmp(s, "\xE2\x80", 2) == 0 &&
                         (unsigned char)s[2] >= 0x80 && (unsigned char)s[2] <= 0x8A;
    return is_quad ? 3 : 0;
}

static bd_text_view trim(bd_text_view view)
{
    for (size_t n; (n = space_bytes(view.data, view.size_bytes)) > 0;) {
        view.data += n;
        view.size_bytes -= n;
    }
    for (bool found = true; found;) {
        found = false;
        for (size_t n = 1; n <= 3 && n <= view.size_bytes && !found; n++)
            if (space_bytes(view.data + view.size_bytes - n, n) == n) {
                view.size_bytes -= n;
                found = true;
            }
    }
    return view;
}

// The system message that is put into a user's turn, and that turn.
typedef struct merged_system {
    bd_text_view text;
    size_t target;  // index of the turn; SIZE_MAX: nothing is put anywhere
} merged_system;

static bd_status find_merged_system(const bd_chat_format *format, const bd_turns *turns,
                                    merged_system *merged, bd_error *err)
{
    const bool is_given = turns->n > 0 && view_equals(turns->items[0].role, system_role);
    *merged = (merged_system){.target = SIZE_MAX};
    if (format->system == SYSTEM_TURN || (!is_given && !format->default_system))
        return BD_OK;
    merged->text = is_given
                       ? turns->items[0].text
                       : (bd_text_view){format->default_system, strlen(format->default_system)};
    if (is_given && format->trims_system)
        merged->text = trim(merged->text);
    for (size_t i = 0; i < turns->n; i++)
        if (view_equals(turns->items[i].role, user_role) &&
            (merged->target == SIZE_MAX || format->system == SYSTEM_LAST_USER))
            merged->target = i;
    if (merged->target == SIZE_MAX)
        return bd_fail(err, BD_ERR_FORMAT,
                       "chat format '%s' puts the system message into a user's turn, and there "
                       "is none",
                       format->name);
    return BD_OK;
}

static bd_status fail_role(const bd_chat_format *format, const bd_turns *turns, size_t i,
                           bd_error *err)
{
    const bd_text_view name = turns->items[i].role;
    if (format->system != SYSTEM_TURN && view_equals(name, system_role))
        return bd_fail(
            err, BD_ERR_FORMAT,
            "message %zu is a system message, which chat format '%s' has only at the "
            "beginning",
            i, format->name);
    return bd_fail(err, BD_ERR_FORMAT,
                   "message %zu has the role '%.*s'; chat format '%s' has %s", i,
                   (int)(name.size_bytes < 60 ? name.size_bytes : 60), name.data, format->name,
                   list_roles(format).text);
}

static bd_status add_calls(const bd_chat_format *format, const bd_turns *turns, size_t i,
                           bool after_text, bool trained, bd_spans *spans, bd_error *err)
{
    const bd_turn *turn = &turns->items[i];
    if (turn->n_calls > 0 && !format->has_calls)
        return bd_fail(err, BD_ERR_FORMAT,
                       "message %zu has tool calls, and chat format '%s' does not say how they "
                       "are written: put them into the content, or give a format with "
                       "'tool_calls'",
                       i, format->name);
    for (size_t k = 0; k < turn->n_calls; k++) {
        if (k > 0 || after_text)
            BD_TRY(add_pieces(spans, &format->call_between, trained, err));
        BD_TRY(add_pieces(spans, &format->call_before, trained, err));
        BD_TRY(add_view(spans, turns->calls[turn->first_call + k], trained, err));
        BD_TRY(add_pieces(spans, &format->call_after, trained, err));
    }
    return BD_OK;
}

static bool is_trained(const role *r, const bd_turn *turn)
{
    return turn->training == BD_TURN_AS_ITS_ROLE ? r->trained
                                                 : turn->training == BD_TURN_TRAINED;
}

bd_status bd_chat_render(const bd_chat_format *format, const bd_turns *turns,
                         bd_turn_ends turn_ends, bd_spans *spans, bool *separator_trained,
                         bd_error *err)
{
    merged_system merged;
    size_t last_trained = SIZE_MAX;
    spans->n = 0;
    *separator_trained = false;
    BD_TRY(find_merged_system(format, turns, &merged, err));
    const bool skips_system = merged.target != SIZE_MAX &&  // the first message is in its turn
                              view_equals(turns->items[0].role, system_role);
    const size_t first = skips_system ? 1 : 0;
    for (size_t i = first; i < turns->n; i++) {
        const role *r = find_role(format, turns->items[i].role);
        if (!r)
            return fail_role(format, turns, i, err);
        if (is_trained(r, &turns->items[i]))
            last_trained = i;
    }

    BD_TRY(add_pieces(spans, &format->begin, false, err));
    if (format->system == SYSTEM_TURN && format->default_system &&
        !(turns->n > 0 && view_equals(turns->items[0].role, system_role))) {
        const role *r = find_role(format, (bd_text_view){system_role, strlen(system_role)});
        BD_TRY(add_pieces(spans, &r->before, false, err));
        BD_TRY(add_pieces(spans, &r->start, false, err));
        BD_TRY(bd_spans_add_text(spans, format->default_system, strlen(format->default_system),
                                 false, err));
        BD_TRY(add_pieces(spans, &r->end, false, err));
        BD_TRY(add_pieces(spans, &r->after, false, err));
    }
    for (size_t i = first; i < turns->n; i++) {
        const bd_turn *turn = &turns->items[i];
        const role *r = find_role(format, turn->role);
        const bool trained = is_trained(r, turn);
        const bool end_trained =
            trained && (turn_ends == BD_TURN_ENDS_ALL ||
                        (turn_ends == BD_TURN_ENDS_LAST && i == last_trained));
        const bool follows = i > first && find_role(format, turns->items[i - 1].role) == r;
        const bool is_followed =
            i + 1 < turns->n && find_role(format, turns->items[i + 1].role) == r;
        const bd_text_view text = r->trimmed ? trim(turn->text) : turn->text;
        BD_TRY(add_pieces(spans, r->has_between && follows ? &r->between : &r->before, false,
                          err));
        BD_TRY(add_pieces(spans, &r->start, trained, err));
        if (i == merged.target) {
            BD_TRY(add_view(spans, merged.text, trained, err));
            BD_TRY(bd_spans_add_text(spans, format->system_between,
                                     strlen(format->system_between), trained, err));
        }
        BD_TRY(add_view(spans, text, trained, err));
        BD_TRY(add_calls(format, turns, i, text.size_bytes > 0, trained, spans, err));
        if (r->has_between && is_followed)
            continue;
        BD_TRY(add_pieces(spans, &r->end, end_trained, err));
        BD_TRY(add_pieces(spans, &r->after, false, err));
    }
    *separator_trained = format->trains_separator && turn_ends != BD_TURN_ENDS_NONE &&
                         last_trained != SIZE_MAX && last_trained + 1 == turns->n;
    return BD_OK;
}

// ---- What a model answers ------------------------------------------------------------------

static const role *find_assistant(const bd_chat_format *format)
{
    return find_role(format, (bd_text_view){assistant_role, strlen(assistant_role)});
}

bd_status bd_chat_render_prompt(const bd_chat_format *format, const char *system,
                                const char *user, bd_spans *spans, bd_error *err)
{
    const role *assistant = find_assistant(format);
    bd_turn turns[2] = {0};
    size_t n = 0;
    bool separator_trained;
    if (!assistant)
        return bd_fail(err, BD_ERR_FORMAT, "chat format '%s' has no role '%s'; it has %s",
                       format->name, assistant_role, list_roles(format).text);
    if (system)
        turns[n++] = (bd_turn){.role = {system_role, strlen(system_role)},
                               .text = {system, strlen(system)}};
    turns[n++] =
        (bd_turn){.role = {user_role, strlen(user_role)}, .text = {user, strlen(user)}};
    BD_TRY(bd_chat_render(format, &(bd_turns){.items = turns, .n = n}, BD_TURN_ENDS_ALL, spans,
                          &separator_trained, err));
    return add_pieces(spans, &assistant->before, false, err);
}

bd_status bd_chat_format_turn_end(const bd_chat_format *format, bd_turn_end *end, bd_error *err)
{
    const role *assistant = find_assistant(format);
    size_t n_bytes = 0;
    *end = (bd_turn_end){.token = BD_SPAN_IS_TEXT};
    if (!assistant || assistant->end.n == 0)
        return BD_OK;
    for (size_t i = 0; i < assistant->end.n; i++) {
        if (assistant->end.items[i].is_token) {
            end->token = assistant->end.items[i].id;
            return BD_OK;
        }
        n_bytes += strlen(assistant->end.items[i].text);
    }
    end->text = malloc(n_bytes + 1);
    if (!end->text)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a chat format");
    char *at = end->text;
    for (size_t i = 0; i < assistant->end.n; i++)
        at = stpcpy(at, assistant->end.items[i].text);
    return BD_OK;
}
