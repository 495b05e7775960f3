#include "trainer/model/rotation.h"

#include <math.h>
#include <string.h>

BD_ENUM_NAMES(bd_rotation_scaling, BD_ROTATION_SCALINGS);

static double unscaled_frequency(const bd_rotation *r, int64_t head_size, double i)
{
    return pow(r->theta, -2.0 * i / (double)head_size);
}

static double llama3_frequency(const bd_rotation *r, double frequency)
{
    const double turns = r->original_positions * frequency / (2.0 * M_PI);
    if (turns < r->low_frequency_factor)
        return frequency / r->factor;
    if (turns > r->high_frequency_factor)
        return frequency;
    const double share = (turns - r->low_frequency_factor) /
                         (r->high_frequency_factor - r->low_frequency_factor);
    return (1.0 - share) * frequency / r->factor + share * frequency;
}

// The pair, as a real number, that turns `n_turns` times over the original positions.
static double pair_that_turns(const bd_rotation *r, int64_t head_size, double n_turns)
{
    return (double)head_size * log(r->original_positions / (2.0 * M_PI * n_turns)) /
           (2.0 * log(r->theta));
}

static double yarn_frequency(const bd_rotation *r, int64_t head_size, int64_t i,
                             double frequency)
{
    double first = pair_that_turns(r, head_size, r->beta_fast);
    double last = pair_that_turns(r, head_size, r->beta_slow);
    if (r->truncates) {
        first = floor(first);
        last = ceil(last);
    }
    first = fmax(first, 0.0);
    last = fmin(last, (double)(head_size - 1));
    if (first == last)
        last += 0.001;  // a step, without dividing by 0
    const double slowed = fmin(fmax(((double)i - first) / (last - first), 0.0), 1.0);
    return slowed * frequency / r->factor + (1.0 - slowed) * frequency;
}

double bd_rotation_frequency(const bd_rotation *r, int64_t head_size, int64_t i)
{
    const double frequency = unscaled_frequency(r, head_size, (double)i);
    switch (r->scaling) {
    case BD_SCALING_LINEAR:
        return frequency / r->factor;
    case BD_SCALING_LLAMA3:
        return llama3_frequency(r, frequency);
    case BD_SCALING_YARN:
        return yarn_frequency(r, head_size, i, frequency);
    case BD_SCALING_NONE:
        break;
    }
    return frequency;
}

void bd_rotation_turns(const bd_rotation *r, int64_t head_size, uint64_t *turns)
{
    // Frequencies are at most 1 (theta, factor >= 1), so the result is below 2^62.
    for (int64_t i = 0; i < head_size / 2; i++)
        turns[i] = (uint64_t)(bd_rotation_frequency(r, head_size, i) / (2.0 * M_PI) * 0x1p64);
}

double bd_rotation_scale(const bd_rotation *r)
{
    if (r->scaling != BD_SCALING_YARN)
        return 1.0;
    return r->attention_factor > 0 ? r->attention_factor : 0.1 * log(r->factor) + 1.0;
}

// ---- config.json ------------------------------------------------------------------------

// The members of a scaling's object in config.json; each is read for the scalings of `used_by`.
typedef struct scaling_member {
    const char *key;
    unsigned used_by;  // 1 << scaling
    size_t at;         // where the double lies in a bd_rotation
    double min, usual;
    bool may_be_left_out;
} scaling_member;

#define FOR(scaling) (1u << BD_SCALING_##scaling)
static const scaling_member scaling_members[] = {
    {"factor", FOR(LINEAR) | FOR(LLAMA3) | FOR(YARN), offsetof(bd_rotation, factor), 1, 0,
     false},
    {"original_max_position_embeddings", FOR(LLAMA3) | FOR(YARN),
     offsetof(bd_rotation, original_positions), 1, 0, true},
    {"low_freq_factor", FOR(LLAMA3), offsetof(bd_rotation, low_frequency_factor), 1e-9, 0,
     false},
    {"high_freq_factor", FOR(LLAMA3), offsetof(bd_rotation, high_frequency_factor), 1e-9, 0,
     false},
    {"beta_fast", FOR(YARN), offsetof(bd_rotation, beta_fast), 1e-9, 32, true},
    {"beta_slow", FOR(YARN), offsetof(bd_rotation, beta_slow), 1e-9, 1, true},
    {"attention_factor", FOR(YARN), offsetof(bd_rotation, attention_factor), 1e-9, 0, true},
};
enum { N_SCALING_MEMBERS = sizeof scaling_members / sizeof scaling_members[0] };

static double *member_of(bd_rotation *r, const scaling_member *member)
{
    return (double *)((char *)r + member->at);
}

// Whether the object may have this member: those that the table does not list are read elsewhere.
static bool is_known_member(const char *key, bd_rotation_scaling scaling)
{
    static const char *const others[] = {"rope_type", "type", "rope_theta",
                                         "partial_rotary_factor"};
    static const char *const of_yarn[] = {"truncate", "mscale", "mscale_all_dim"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(key, others[i]) == 0)
            return true;
    for (size_t i = 0; i < sizeof of_yarn / sizeof of_yarn[0]; i++)
        if (strcmp(key, of_yarn[i]) == 0)
            return scaling == BD_SCALING_YARN;
    for (size_t i = 0; i < N_SCALING_MEMBERS; i++)
        if (strcmp(key, scaling_members[i].key) == 0)
            return (scaling_members[i].used_by & 1u << scaling) != 0;
    return false;
}

// What yarn has beside numbers. "mscale" and "mscale_all_dim" are another way to say the
// attention factor.
static bd_status read_yarn(bd_rotation *r, const bd_json *json, bd_error *err)
{
    double mscale = 0, of_all = 0;
    r->truncates = true;
    if (!bd_json_is_null(json, "truncate"))
        BD_TRY(bd_json_get_bool(json, "truncate", &r->truncates, err));
    if (!bd_json_is_null(json, "mscale"))
        BD_TRY(bd_json_get_real(json, "mscale", 0, 1e12, &mscale, err));
    if (!bd_json_is_null(json, "mscale_all_dim"))
        BD_TRY(bd_json_get_real(json, "mscale_all_dim", 0, 1e12, &of_all, err));
    if (r->attention_factor == 0 && mscale > 0 && of_all > 0)
        r->attention_factor =
            (0.1 * mscale * log(r->factor) + 1.0) / (0.1 * of_all * log(r->factor) + 1.0);
    if (r->attention_factor > 0 &&
        !(r->attention_factor >= 1e-9 && r->attention_factor <= 1e12))
        return bd_fail(err, BD_ERR_FORMAT, "'mscale' gives an attention factor of %g",
                       r->attention_factor);
    return BD_OK;
}

bd_status bd_rotation_read_scaling(bd_rotation *r, const bd_json *json, int64_t n_positions,
                                   bd_error *err)
{
    const char *type = bd_rotation_scaling_names[BD_SCALING_NONE];
    const char *key = bd_json_is_null(json, "rope_type") ? "type" : "rope_type";
    if (!bd_json_is_null(json, key))
        BD_TRY(bd_json_get_string(json, key, &type, err));
    int scaling = 0;
    while (bd_rotation_scaling_names[scaling] &&
           strcmp(bd_rotation_scaling_names[scaling], type) != 0)
        scaling++;
    if (!bd_rotation_scaling_names[scaling])
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "'%s' of the rotation is '%.40s', which this version does not know", key,
                       type);
    r->scaling = (bd_rotation_scaling)scaling;
    for (bd_json_member m = bd_json_first(json); m.key; m = bd_json_next(json, m))
        if (!is_known_member(m.key, r->scaling) && !bd_json_is_null(json, m.key))
            return bd_fail(err, BD_ERR_UNSUPPORTED,
                           "the rotation has '%.60s', which is not known for '%s'", m.key,
                           type);
    if (!bd_json_is_null(json, "rope_theta"))
        BD_TRY(bd_json_get_real(json, "rope_theta", 1, 1e12, &r->theta, err));
    double share = 1;  // of a head's channels that are rotated
    if (!bd_json_is_null(json, "partial_rotary_factor"))
        BD_TRY(
            bd_json_get_real(json, "partial_rotary_factor", -INFINITY, INFINITY, &share, err));
    if (share != 1)
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "'partial_rotary_factor' of the rotation is not 1");
    for (size_t i = 0; i < N_SCALING_MEMBERS; i++) {
        const scaling_member *member = &scaling_members[i];
        if (!(member->used_by & 1u << r->scaling))
            continue;
        *member_of(r, member) = member->usual;
        if (!member->may_be_left_out || !bd_json_is_null(json, member->key))
            BD_TRY(bd_json_get_real(json, member->key, member->min, 1e12, member_of(r, member),
                                    err));
    }
    const bool has_original = r->scaling == BD_SCALING_LLAMA3 || r->scaling == BD_SCALING_YARN;
    if (has_original && r->original_positions == 0)
        r->original_positions = (double)n_positions;
    if (r->original_positions != floor(r->original_positions))
        return bd_fail(err, BD_ERR_FORMAT,
                       "'original_max_position_embeddings' of the rotation is %g, no integer",
                       r->original_positions);
    if (r->scaling == BD_SCALING_LLAMA3 && r->high_frequency_factor <= r->low_frequency_factor)
        return bd_fail(err, BD_ERR_FORMAT,
                       "'high_freq_factor' must be larger than 'low_freq_factor'");
    return r->scaling == BD_SCALING_YARN ? read_yarn(r, json, err) : BD_OK;
}

bd_json *bd_rotation_scaling_json(const bd_rotation *rotation)
{
    bd_rotation r = *rotation;
    if (r.scaling == BD_SCALING_NONE)
        return NULL;
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "rope_type", bd_rotation_scaling_names[r.scaling]);
    for (size_t i = 0; i < N_SCALING_MEMBERS; i++) {
        const scaling_member *member = &scaling_members[i];
        const double value = *member_of(&r, member);
        if (!(member->used_by & 1u << r.scaling) || value == 0)
            continue;
        if (member->at == offsetof(bd_rotation, original_positions))
            bd_json_set_integer(json, member->key, (int64_t)value);
        else
            bd_json_set_real(json, member->key, value);
    }
    if (r.scaling == BD_SCALING_YARN)
        bd_json_set_bool(json, "truncate", r.truncates);
    return json;
}
