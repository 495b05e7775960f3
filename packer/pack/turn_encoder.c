#include "packer/pack/turn_encoder.h"

#include "common/chat/chat_format.h"

// Segments, or a prompt and its completion: texts and tokens as they are.
static bd_status take_segments(bd_spans *spans, const bd_turns *turns,
                               const bd_tokenizer *tokenizer, bool *end_trained, bd_error *err)
{
    spans->n = 0;
    for (size_t i = 0; i < turns->n; i++) {
        const bd_turn *turn = &turns->items[i];
        const bool trained = *end_trained = turn->training == BD_TURN_TRAINED;
        const size_t n = turn->text.size_bytes;
        uint32_t id;
        if (!turn->is_token) {
            BD_TRY(bd_spans_add_text(spans, turn->text.data, n, trained, err));
            continue;
        }
        if (!tokenizer->kind->find_token(tokenizer, turn->text.data, n, &id))
            return bd_fail(err, BD_ERR_FORMAT, "the tokenizer has no token '%.*s'",
                           (int)(n < 60 ? n : 60), turn->text.data);
        BD_TRY(bd_spans_add_token(spans, id, trained, err));
    }
    return BD_OK;
}

bd_status bd_turns_encode(bd_turn_encoder *turn_encoder, const bd_turns *turns,
                          const bd_input_options *reading, const bd_dataset_config *config,
                          bd_encoder *encoder, bd_turn_ids *result, bd_error *err)
{
    bd_spans *spans = &turn_encoder->spans;
    const bd_span_ids *ids = &turn_encoder->ids;
    bool end_trained = false;
    BD_TRY(
        reading->form == BD_FORM_MESSAGES
            ? bd_chat_render(reading->chat, turns, reading->turn_ends, spans, &end_trained, err)
            : take_segments(spans, turns, encoder->tokenizer, &end_trained, err));
    BD_TRY(bd_spans_encode(spans, encoder, &turn_encoder->ids, err));
    *result = (bd_turn_ids){ids->ids, ids->trained, ids->n, end_trained};
    // The separator is the format's own end of the conversation, and trained as that is.
    if (spans->n > 0 && spans->items[spans->n - 1].token == config->separator) {
        result->n--;
        result->end_trained = ids->trained[result->n];
    }
    if (config->bos != BD_NO_BOS && result->n > 0 && spans->items[0].token == config->bos) {
        result->ids++;
        result->trained++;
        result->n--;
    }
    return BD_OK;
}

static void hash_text(bd_hasher *hasher, bd_text_view text)
{
    if (text.size_bytes > 0)
        bd_hasher_add(hasher, text.data, text.size_bytes);
    bd_hasher_add(hasher, "", 1);
}

bd_status bd_turns_hash(bd_turn_encoder *turn_encoder, const bd_turns *turns, uint64_t *hash,
                        bd_error *err)
{
    if (!turn_encoder->hasher)
        turn_encoder->hasher = bd_hasher_new();
    if (!turn_encoder->hasher)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a checksum");
    for (size_t i = 0; i < turns->n; i++) {
        const bd_turn *turn = &turns->items[i];
        hash_text(turn_encoder->hasher, turn->role);
        hash_text(turn_encoder->hasher, turn->text);
        for (size_t k = 0; k < turn->n_calls; k++)
            hash_text(turn_encoder->hasher, turns->calls[turn->first_call + k]);
    }
    *hash = bd_hasher_take64(turn_encoder->hasher);
    return BD_OK;
}

void bd_turn_encoder_release(bd_turn_encoder *turn_encoder)
{
    bd_spans_release(&turn_encoder->spans);
    bd_span_ids_release(&turn_encoder->ids);
    bd_hasher_free(turn_encoder->hasher);
    *turn_encoder = (bd_turn_encoder){0};
}
