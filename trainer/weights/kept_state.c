#include "trainer/weights/kept_state.h"

BD_ENUM_NAMES(bd_optimizer_kind, BD_OPTIMIZERS);

int64_t bd_second_moments_before(bd_optimizer_kind kind, const bd_parameters *parameters,
                                 int64_t offset)
{
    int64_t n = offset;
    for (size_t i = 0; i < parameters->n; i++) {
        const bd_parameter *parameter = &parameters->items[i];
        const int64_t n_before = offset - parameter->offset;
        if (n_before > 0 && bd_moved_by_muon(kind, parameter))
            n -= n_before < parameter->n ? n_before : parameter->n;
    }
    return n;
}

bd_status bd_kept_state_from_json(bd_kept_state *kept, const bd_json *training, bd_error *err)
{
    int word = BD_OPTIMIZER_ADAMW;
    if (!bd_json_is_null(training, "optimizer"))
        BD_TRY(bd_json_get_word(training, "optimizer", bd_optimizer_kind_names, &word, err));
    *kept = (bd_kept_state){(bd_optimizer_kind)word, !bd_json_is_null(training, "average")};
    return BD_OK;
}
