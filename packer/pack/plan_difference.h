// plan_difference.h - in what two plans differ: what that means for what is packed already.
#ifndef BINDERY_PACKER_PACK_PLAN_DIFFERENCE_H
#define BINDERY_PACKER_PACK_PLAN_DIFFERENCE_H

#include <stddef.h>

#include "common/base/json.h"

typedef enum bd_plan_difference {
    BD_PLANS_ARE_SAME,
    BD_PLANS_ALLOW_OTHERS,  // only in how many records may be bad, which no shard depends on
    BD_PLANS_READ_CHANGED,  // and in what inputs of the same names and formats hold
    BD_PLANS_DIFFER,        // in anything else
} bd_plan_difference;

// The least of these that is true. `where` tells, as bd_json_difference() does, the difference
// that matters most; it is empty if there is none. A plan of an older format says what it is
// read as, and the versions themselves are no difference: shards of an older one are packed again
// where such a dataset is continued (finished.h).
bd_plan_difference bd_plan_compare(const bd_json *here, const bd_json *there, char *where,
                                   size_t where_size);

#endif
