# Writes OUTPUT, a C source with the files FOLDER/NAME.json, for each of NAMES (with commas).
string(REPLACE "," ";" names "${NAMES}")
set(texts "")
set(list "")
set(words "")
set(index 0)
foreach(name IN LISTS names)
    file(READ ${FOLDER}/${name}.json digits HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${digits}")
    string(APPEND texts "static const unsigned char text_${index}[] = {${bytes}};\n")
    string(APPEND list "    {(const char *)text_${index}, sizeof text_${index}},\n")
    string(APPEND words "    \"${name}\",\n")
    math(EXPR index "${index} + 1")
endforeach()
file(WRITE ${OUTPUT} "#include \"common/chat/built_in.h\"

#include \"common/chat/chat_format.h\"

${texts}
const bd_chat_format_text bd_built_in_chat_format_texts[] = {
${list}};

const char *const bd_built_in_chat_formats[] = {
${words}    NULL,
};
")
