#!/usr/bin/env bash
# Build ggml's CUDA backend from the pinned engine source into bin/libggml-cuda.so; uma-serve loads it at start.
set -euo pipefail
engine=$1
for tool in nvcc cmake; do
	command -v "$tool" >/dev/null || {
		echo "make cuda needs $tool on the PATH (the CUDA toolkit, 12 or later, and cmake 3.21 or later)" >&2
		exit 1
	}
done
ggml=$engine/ml/backend/ggml/ggml
build=build/cuda
mkdir -p "$build" bin
# The engine module's own top-level CMakeLists builds every backend; this one builds CUDA alone.
cat >"$build/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.21)
project(uma-serve-cuda C CXX)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(BUILD_SHARED_LIBS ON)
set(CMAKE_BUILD_RPATH "\$ORIGIN")
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH "\$ORIGIN")
find_package(Threads REQUIRED)
find_package(CUDAToolkit REQUIRED)
foreach(option GGML_BUILD GGML_SHARED GGML_BACKEND_DL GGML_BACKEND_SHARED GGML_CPU GGML_CUDA_GRAPHS GGML_CUDA_FA)
  set(\${option} ON)
endforeach()
set(GGML_SCHED_MAX_COPIES 4)
set(GGML_CUDA_PEER_MAX_BATCH_SIZE 128)
set(GGML_CUDA_COMPRESSION_MODE default)
set(GGML_VERSION_MAJOR 0)
set(GGML_VERSION_MINOR 0)
set(GGML_VERSION_PATCH 0)
set(GGML_VERSION 0.0.0)
include_directories($ggml/src $ggml/include $ggml/src/ggml-cpu $ggml/src/ggml-cpu/amx)
add_compile_definitions(NDEBUG GGML_VERSION=0x0 GGML_COMMIT=0x0)
add_subdirectory($ggml/src \${CMAKE_BINARY_DIR}/ggml)
add_subdirectory($ggml/src/ggml-cuda \${CMAKE_BINARY_DIR}/ggml-cuda)
CMAKE
cmake -S "$build" -B "$build/out" -DCMAKE_BUILD_TYPE=Release \
	${CUDA_ARCHITECTURES:+-DCMAKE_CUDA_ARCHITECTURES="$CUDA_ARCHITECTURES"}
cmake --build "$build/out" --target ggml-cuda -j "$(getconf _NPROCESSORS_ONLN)"
find "$build/out" -name 'libggml-*.so*' -exec cp -a {} bin/ \;
ls -l bin/libggml-*
