# ggml configures the tiles of AMX by _tile_loadconfig. GCC's intrinsic names only the first 8 of the 64 bytes that the
# instruction reads (seen with 12.2), so that the compiler drops the stores of the others as dead: the first product of
# weights ends the process with an illegal instruction. Called with the folder whose target ggml-cpu is.
function(uma_keep_tile_config ggml)
  if(TARGET ggml-cpu AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set_source_files_properties(${ggml}/src/ggml-cpu/amx/mmq.cpp TARGET_DIRECTORY ggml-cpu
                                PROPERTIES COMPILE_OPTIONS "-fno-dse;-fno-tree-dse")
  endif()
endfunction()
# scripts/engine-tools.sh includes this file in llama.cpp's own project, whose targets come later.
if(UMA_TOOLS)
  cmake_language(DEFER CALL uma_keep_tile_config ${CMAKE_SOURCE_DIR}/ggml)
endif()
