// record_form.h - in which form a record of text holds its document.
#ifndef BINDERY_PACKER_INPUT_RECORD_FORM_H
#define BINDERY_PACKER_INPUT_RECORD_FORM_H

#include "common/base/enum_names.h"

#define BD_RECORD_FORMS(X)                                                                 \
    X(BD_FORM_TEXT, "text")             /* one text, all of it trained */                  \
    X(BD_FORM_COMPLETION, "completion") /* a prompt and, in another field, what follows */ \
    X(BD_FORM_SEGMENTS, "segments")     /* a list of {text or token, train} */             \
    X(BD_FORM_MESSAGES, "messages")     /* a list of {role, content} */
BD_ENUM(bd_record_form, BD_RECORD_FORMS);

// Every form but the first says which tokens are trained.
enum { BD_MAX_FORM_FIELDS = 2 };

#endif
