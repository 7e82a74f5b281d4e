//go:build cgo && (llama_engine || llama_system)

package llama

// #include "ggml.h"
//
// static bool uma_has_floats(int type) { return ggml_get_type_traits(type)->to_float != NULL; }
//
// static void uma_floats(int type, const void * from, float * to, int64_t n) {
//     ggml_get_type_traits(type)->to_float(from, to, n);
// }
import "C"

import (
	"fmt"
	"unsafe"
)

// Floats decodes weights of a type (ggml's number) as ggml does. from holds whole blocks, and as many elements as to.
func Floats(typ uint32, from []byte, to []float32) error {
	start()
	if typ >= C.GGML_TYPE_COUNT || !bool(C.uma_has_floats(C.int(typ))) {
		return fmt.Errorf("weights of type %d (enum ggml_type) cannot be decoded: this llama.cpp has no decoder of it",
			typ)
	}
	block, size := int(C.ggml_blck_size(typ)), int(C.ggml_type_size(typ))
	if len(to)%block != 0 || len(from) != len(to)/block*size {
		return fmt.Errorf("%d weights of type %d in %d bytes: want blocks of %d weights in %d bytes", len(to), typ,
			len(from), block, size)
	}
	if len(to) > 0 {
		C.uma_floats(C.int(typ), unsafe.Pointer(unsafe.SliceData(from)), (*C.float)(unsafe.SliceData(to)),
			C.int64_t(len(to)))
	}
	return nil
}
