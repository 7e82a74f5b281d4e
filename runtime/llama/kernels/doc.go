// Package kernels has the products and the attention of docs/adr/0007-cpu-kernels.md in C++, a file for each
// instruction set; runtime/llama calls them. It is a package because they take three quarters of the binding's compile
// time and depend on no other package: Go compiles them once for all tags and tests of a build, where it compiles
// runtime/llama anew for each. Its Go API switches norms on and off, and tries them.
//
//	matmul.h, attention.h  what runtime/llama asks of an instruction set
//	matmul_formats.h       how weights of each format become vectors
//	matmul_kernel.h        products of quantised weights; matmul_float.h of others; matmul_amx.h on tiles
//	attention_kernel.h     attention of a group of rows; attention_float.h, attention_short.h its vectors
//	norms.cpp              norms and rotations of a step's rows
//	vectors_*.h            one vocabulary for the vectors of all instruction sets
package kernels
