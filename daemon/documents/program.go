package documents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/model/pdf"
)

// MaxTime is the longest time that reading a PDF may take.
const MaxTime = 30 * time.Second

// maxProcesses is the number of PDFs that are read at the same time; others wait.
const maxProcesses = 2

// Program starts the processes that read PDF files.
type Program struct {
	Path  string
	Args  []string      // the arguments, Arg first
	Limit time.Duration // of one PDF
	Log   *slog.Logger

	slots chan struct{}
}

// NewProgram returns a Program whose Limit is MaxTime.
func NewProgram(path string, args []string, log *slog.Logger) *Program {
	return &Program{Path: path, Args: args, Limit: MaxTime, Log: log, slots: make(chan struct{}, maxProcesses)}
}

// maxWords is the most bytes that a process may write to stderr before the rest is left out.
const maxWords = 4 << 10

// Read returns the text of a PDF. The error is an *api.Error: BadRequest where the file is to blame.
func (p *Program) Read(ctx context.Context, data []byte) (string, error) {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, p.Limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.Path, p.Args...) // it is killed when ctx ends
	cmd.Env = []string{"LANG=C"}
	cmd.Dir = "/"
	cmd.Stdin = bytes.NewReader(data)
	words := &capped{left: maxWords}
	cmd.Stderr = words
	out := &capped{left: 2*pdf.MaxText + 64<<10} // a character of text may take more in JSON
	cmd.Stdout = out
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	var r result
	switch {
	case err == nil && json.Unmarshal(out.b.Bytes(), &r) == nil && r.Failed == "" && utf8.ValidString(r.Text):
		return r.Text, nil
	case err == nil && r.Failed != "":
		return "", api.Refuse(r.Failed)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "", api.Refusef("%v: reading it takes longer than %v: send its text", pdf.ErrPDF, p.Limit)
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case out.cut:
		return "", api.Refusef("%v: its text has more than %d bytes: send it in parts", pdf.ErrPDF, pdf.MaxText)
	case strings.Contains(words.b.String(), "out of memory"), strings.Contains(words.b.String(), "cannot allocate"):
		return "", api.Refusef("%v: reading it takes more than %d MiB of memory: send its text", pdf.ErrPDF,
			maxMemory>>20)
	case strings.Contains(words.b.String(), "stack exceeds"), strings.Contains(words.b.String(), "stack overflow"):
		return "", api.Refuse(pdf.ErrPDF.Error() + ": it refers to itself")
	}
	p.Log.Warn("the process that reads a PDF has failed", "error", err, "stderr", first(words.b.String()))
	if _, started := err.(*exec.ExitError); started || err == nil {
		return "", api.Refuse(pdf.ErrPDF.Error() + ": the process that reads it has ended: send its text")
	}
	return "", &api.Error{Code: wire.InternalFailure, Message: "start the process that reads a PDF: " + err.Error()}
}

// first returns the first line of what a process has said.
func first(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return fmt.Sprintf("%.300s", line)
}

// capped keeps the first bytes that are written to it.
type capped struct {
	b    bytes.Buffer
	left int
	cut  bool // there were more
}

func (c *capped) Write(p []byte) (int, error) {
	n := min(len(p), c.left)
	c.cut = c.cut || n < len(p)
	c.left -= n
	c.b.Write(p[:n])
	return len(p), nil
}
