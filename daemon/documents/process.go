package documents

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/uma-serve/uma-serve/internal/host/sandbox"
	"github.com/uma-serve/uma-serve/model/pdf"
)

// Arg is the argument with which a program runs as the process that reads a PDF; the argument behind it is Confined or
// another word.
const Arg = "document-process"

// Confined has the process confine itself.
const Confined = "confined"

// result is the answer of the process. One of its fields is set.
type result struct {
	Text   string `json:"text,omitempty"`
	Failed string `json:"failed,omitempty"` // the file is to blame
}

// maxMemory is the private memory of the process, in bytes.
const maxMemory = 1 << 30

// Run is the process that reads a PDF: it reads the file from in and writes its text to out. It opens no file, starts
// nothing and reaches nothing.
func Run(in io.Reader, out io.Writer, confined bool) error {
	runtime.GOMAXPROCS(1) // beside the models
	debug.SetMemoryLimit(maxMemory / 2)
	if err := (sandbox.Limits{Memory: maxMemory, OpenFiles: 64, FileBytes: 0}).Set(); err != nil {
		return fmt.Errorf("limit the memory of the process: %w", err)
	}
	if confined {
		if _, err := sandbox.Enter(sandbox.Policy{}); err != nil {
			return err
		}
	}
	data, err := io.ReadAll(io.LimitReader(in, MaxBytes+1))
	if err != nil {
		return err
	}
	var r result
	text, _, err := pdf.Text(data)
	if r.Text = text; err != nil {
		r.Failed = err.Error()
	}
	return json.NewEncoder(out).Encode(&r)
}
