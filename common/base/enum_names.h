// enum_names.h - an enum and the names of its values, both made from one list.
//
//   #define BD_COLORS(X) X(BD_COLOR_AUTO, "auto") X(BD_COLOR_NEVER, "never")
//   BD_ENUM(bd_color, BD_COLORS);        // in a header
//   BD_ENUM_NAMES(bd_color, BD_COLORS);  // in its source file
//
// The type is then `bd_color`, and bd_color_names[BD_COLOR_NEVER] is "never". The array ends
// with NULL, so that BD_CHOICE() (options.h) and bd_json_get_word() (json.h) can search it.
// BD_ENUM_COUNT(BD_COLORS) is 2, a constant for the size of an array.
#ifndef BINDERY_COMMON_BASE_ENUM_NAMES_H
#define BINDERY_COMMON_BASE_ENUM_NAMES_H

#define BD_ENUM_VALUE_(value, name) value,
#define BD_ENUM_NAME_(value, name)  [value] = (name),
#define BD_ENUM_ONE_(value, name)   +1

#define BD_ENUM(type, list)                          \
    typedef enum type { list(BD_ENUM_VALUE_) } type; \
    extern const char *const type##_names[]

#define BD_ENUM_NAMES(type, list) const char *const type##_names[] = {list(BD_ENUM_NAME_) NULL}

#define BD_ENUM_COUNT(list) (0 list(BD_ENUM_ONE_))

#endif
