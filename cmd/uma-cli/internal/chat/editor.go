package chat

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/uma-serve/uma-serve/cmd/uma-cli/internal/lineedit"
	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// maxLine is the longest message that is read where lines are not edited: a file without line ends must not fill the
// memory. What is longer than a request can hold is refused later.
const maxLine = wire.MaxFrameBytes + 1

// ErrInterrupt is Ctrl-C at the prompt.
var ErrInterrupt = lineedit.ErrInterrupt

// LineReader reads what the user types. io.EOF is Ctrl-D or the end of the input, ErrInterrupt Ctrl-C.
type LineReader interface {
	ReadLine(prompt string) (string, error)
}

// NewEditor returns a LineReader with editing, on the process's terminal. complete gives the words that may be at
// the end of line. It holds the terminal in raw mode only while it reads, so that Ctrl-C during an answer is a SIGINT.
func NewEditor(h *History, complete func(line string) []string) (*lineedit.Editor, error) {
	e, err := lineedit.Open(os.Stdin, os.Stdout)
	if err != nil {
		return nil, err
	}
	e.History, e.Complete, e.More = h, complete, openQuotes
	return e, nil
}

// NewPlainReader returns a LineReader without editing, for TERM=dumb and for tests. It shows prompts on out.
func NewPlainReader(in io.Reader, out io.Writer) LineReader {
	return &plainReader{in: bufio.NewReader(in), out: out}
}

type plainReader struct {
	in  *bufio.Reader
	out io.Writer
}

func (p *plainReader) ReadLine(prompt string) (string, error) {
	if _, err := io.WriteString(p.out, prompt); err != nil {
		return "", err
	}
	var text strings.Builder
	for {
		line, err := p.in.ReadSlice('\n')
		if text.Len()+len(line) > maxLine {
			return "", fmt.Errorf("a line has more than %s bytes", ui.Count(maxLine))
		}
		text.Write(line)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			if err == io.EOF && text.Len() > 0 {
				return text.String(), nil
			}
			return "", err
		}
		if openQuotes(text.String()) {
			continue
		}
		return strings.TrimSuffix(text.String(), "\n"), nil
	}
}

const tripleQuote = `"""`

// openQuotes reports whether text begins a message of several lines and does not end it yet.
func openQuotes(text string) bool {
	text = strings.TrimLeft(text, " \t")
	rest, ok := strings.CutPrefix(text, tripleQuote)
	return ok && !strings.Contains(rest, tripleQuote)
}

// unquote returns a message without the quotes of a multi-line one.
func unquote(text string) string {
	trimmed := strings.TrimSpace(text)
	rest, ok := strings.CutPrefix(trimmed, tripleQuote)
	if !ok {
		return text
	}
	body, after, _ := strings.Cut(rest, tripleQuote)
	body = strings.TrimPrefix(body, "\n")
	body = strings.TrimSuffix(body, "\n")
	if after = strings.TrimSpace(after); after != "" {
		body += "\n" + after
	}
	return body
}
