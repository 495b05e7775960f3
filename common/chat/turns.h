// turns.h - what a record says, turn by turn: the messages of a chat, or texts of which it is known
// whether they are trained.
#ifndef BINDERY_COMMON_CHAT_TURNS_H
#define BINDERY_COMMON_CHAT_TURNS_H

#include <stdbool.h>
#include <stddef.h>

typedef enum bd_turn_training {
    BD_TURN_AS_ITS_ROLE,  // the record does not say
    BD_TURN_UNTRAINED,
    BD_TURN_TRAINED,
} bd_turn_training;

// UTF-8 without a terminator, borrowed.
typedef struct bd_text_view {
    const char *data;
    size_t size_bytes;
} bd_text_view;

typedef struct bd_turn {
    bd_text_view role;  // of a message; empty for other texts, which have none
    bd_text_view text;
    bool is_token;  // the text is the name of a special token
    bd_turn_training training;
    size_t first_call, n_calls;  // of a message: its tool calls, each as JSON
} bd_turn;

typedef struct bd_turns {
    const bd_turn *items;  // [n], borrowed
    size_t n;
    const bd_text_view *calls;  // of all turns, borrowed
} bd_turns;

#endif
