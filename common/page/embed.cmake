# bindery_embed(TARGET NAME FILE): compiles FILE into TARGET as `const bd_page_part NAME`
# (common/page/page.h). The same file, run as a script, writes the C source.
if(NOT CMAKE_SCRIPT_MODE_FILE)
    set(bindery_embed_script ${CMAKE_CURRENT_LIST_FILE} CACHE INTERNAL "")

    function(bindery_embed target name file)
        set(input ${CMAKE_CURRENT_SOURCE_DIR}/${file})
        set(output ${CMAKE_CURRENT_BINARY_DIR}/${file}.c)
        add_custom_command(OUTPUT ${output}
            COMMAND ${CMAKE_COMMAND} -DNAME=${name} -DINPUT=${input} -DOUTPUT=${output}
                -P ${bindery_embed_script}
            DEPENDS ${input} ${bindery_embed_script} VERBATIM)
        target_sources(${target} PRIVATE ${output})
    endfunction()
    return()
endif()

# "0011" becomes "0x00,0x11,", in lines of 16 bytes.
function(as_bytes digits result)
    string(REPEAT "[0-9a-f]" 32 line)
    string(REGEX REPLACE "(${line})" "\\1\n    " bytes "${digits}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
    set(${result} "${bytes}" PARENT_SCOPE)
endfunction()

file(READ ${INPUT} text)
if(INPUT MATCHES "\\.(css|js)$" AND text MATCHES "</(script|style)")
    message(FATAL_ERROR "${INPUT} would end the element that it is put into")
endif()
file(READ ${INPUT} digits HEX)
file(SHA256 ${INPUT} hash)
as_bytes("${digits}" bytes)
as_bytes("${hash}" hash_bytes)
file(WRITE ${OUTPUT} "#include \"common/page/page.h\"

static const unsigned char bytes[] = {
    ${bytes}
};

const bd_page_part ${NAME} = {
    .text = (const char *)bytes,
    .size_bytes = sizeof bytes,
    .sha256 = {${hash_bytes}},
};
")
