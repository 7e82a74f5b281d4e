//go:build cgo && (llama_engine || llama_system)

package llama

// #include "bridge.h"
import "C"

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"unsafe"
)

func init() {
	// After the init of the imported engine, which sets another log callback.
	C.uma_install()
	C.uma_log_level(ggmlWarn)
}

func setLogLevel(lowest int32) { C.uma_log_level(C.int32_t(lowest)) }

var drain struct {
	sync.Mutex
	buf []byte // Invariant: used under the mutex only
}

// DrainLogs sends llama.cpp's pending log lines to the logger. Safe from any goroutine; cheap when there are none.
func DrainLogs() { drainLogs(slog.LevelError) }

// drainLogs delivers the pending lines, none above level most, and returns the text of the error lines.
func drainLogs(most slog.Level) string {
	drain.Lock()
	defer drain.Unlock()
	if drain.buf == nil {
		drain.buf = make([]byte, 4096)
	}
	var errs []string
	for {
		var level C.int32_t
		n := C.uma_log_next((*C.char)(unsafe.Pointer(&drain.buf[0])), C.int32_t(len(drain.buf)), &level)
		if n < 0 {
			break
		}
		text := strings.TrimRight(string(drain.buf[:n]), " \r")
		if text == "" {
			continue
		}
		if level == ggmlError {
			errs = append(errs, text)
		}
		emit(min(slogLevel(int32(level)), most), text)
	}
	if lost := C.uma_log_lost(); lost > 0 {
		emit(slog.LevelInfo, fmt.Sprintf("%d lines of llama.cpp's log were lost", lost))
	}
	return errorText(errs)
}

// errorText joins error lines to one sentence, without the names of llama.cpp's functions before each and without the
// lines that only say that something failed.
func errorText(lines []string) string {
	var out []string
	for _, l := range lines {
		if name, rest, ok := strings.Cut(l, ": "); ok && !strings.Contains(name, " ") {
			l = rest
		}
		l = strings.TrimPrefix(l, "error loading model: ")
		if l == "failed to load model" || strings.HasPrefix(l, "failed to decode, ret") || slices.Contains(out, l) {
			continue
		}
		out = append(out, l)
	}
	return strings.Join(out, "; ")
}
