#include "trainer/model/family.h"

#define ADDRESS(name) &bd_family_##name,
#define NAME(name)    #name,

const bd_family *const bd_families[] = {BD_FOR_EACH_FAMILY(ADDRESS) NULL};
const char *const bd_family_names[] = {BD_FOR_EACH_FAMILY(NAME) NULL};
