// Package pdf reads the text of PDF files. The bytes are a client's: the limits of pages, of decompressed bytes and of
// text hold here, and those of time and memory in the process that calls it, because the library that reads objects
// panics, and may loop or take memory without end (docs/adr/0022-pdf-documents.md).
//
// pdf.go has the document, page.go the operators of a page and where lines and words end, font.go what codes mean, and
// lex.go the syntax of pages and tables of characters.
package pdf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ledongthuc/pdf"
)

// Limits of a file.
const (
	MaxPages  = 600
	MaxText   = 8 << 20   // bytes of text
	maxStream = 128 << 20 // bytes of all pages, fonts' tables and forms that are decompressed
	maxForms  = 8         // forms within forms
)

// ErrPDF is wrapped by all errors about the bytes of a file.
var ErrPDF = errors.New("PDF cannot be read")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrPDF, fmt.Sprintf(format, args...))
}

// Is reports whether bytes begin as a PDF file does: some programs put bytes before its header.
func Is(data []byte) bool { return bytes.Contains(data[:min(len(data), 1024)], []byte("%PDF-")) }

// Text returns the text of a file, its pages apart by an empty line, and the number of pages.
func Text(data []byte) (text string, pages int, err error) {
	defer func() {
		if r := recover(); r != nil { // of the library
			text, err = "", refuse("it is malformed: %.200v", r)
		}
	}()
	if data, err = trim(data); err != nil {
		return "", 0, err
	}
	r, err := pdf.NewReader(bytes.NewReader(data), int64(len(data)))
	switch {
	case errors.Is(err, pdf.ErrInvalidPassword):
		return "", 0, refuse("it is encrypted with a password: send it without one")
	case err != nil:
		return "", 0, refuse("%.300v", err)
	}
	switch pages = r.NumPage(); {
	case pages < 1:
		return "", 0, refuse("it has no pages")
	case pages > MaxPages:
		return "", pages, refuse("it has %d pages, and the limit is %d: send it in parts", pages, MaxPages)
	}
	d := &document{left: maxStream, fonts: map[string]*font{}}
	var out strings.Builder
	for n := 1; n <= pages; n++ {
		body := strings.TrimSpace(d.page(r, n))
		if d.left <= 0 {
			return "", pages, refuse("its pages have more than %d bytes", maxStream)
		}
		if out.Len()+len(body) > MaxText {
			return "", pages, refuse("its text has more than %d bytes: send it in parts", MaxText)
		}
		if body != "" && out.Len() > 0 {
			out.WriteString("\n\n")
		}
		out.WriteString(body)
	}
	if strings.IndexFunc(out.String(), readable) < 0 {
		why := "they are pictures, as a scanner makes them"
		if d.unknown > 0 {
			why = fmt.Sprintf("%d characters are of fonts that do not say which they are", d.unknown)
		}
		return "", pages, refuse("its %d pages have no text (%s): recognise it with an OCR program first, or send the "+
			"pages as images to a model that sees", pages, why)
	}
	return out.String(), pages, nil
}

// readable reports whether a character is more than space.
func readable(r rune) bool { return r > ' ' && r != 0xfffd }

// header is a version that the library knows; the syntax of 2.0 is the same for the parts that are read here.
const header = "%PDF-1.7\n"

// trim cuts the bytes before and behind the file, and gives it a header that the library accepts.
func trim(data []byte) ([]byte, error) {
	if !Is(data) {
		return nil, refuse("it does not begin with %%PDF-, but with %q", data[:min(len(data), 8)])
	}
	data = data[bytes.Index(data, []byte("%PDF-")):]
	end := bytes.LastIndex(data, []byte("%%EOF"))
	if end < len(header) {
		return nil, refuse("it has no end (%%%%EOF): it did not come whole")
	}
	out := append([]byte(nil), data[:end+len("%%EOF")]...)
	copy(out, header)
	return out, nil
}

// document is the state that the pages of a file share.
type document struct {
	left    int64            // bytes that may still be decompressed
	fonts   map[string]*font // by what their dictionary says
	unknown int              // characters without a meaning
}

// page returns the text of a page. Of a malformed page it is the text before the error.
func (d *document) page(r *pdf.Reader, n int) string {
	w := &writer{doc: d}
	func() {
		defer func() { _ = recover() }() // of the library; the other pages may be good
		p := r.Page(n)
		if p.V.IsNull() {
			return
		}
		w.run(d.read(p.V.Key("Contents")), p.Resources(), newState(), 0)
	}()
	return w.out.String()
}

// read returns the decompressed bytes of a stream, or of an array of streams.
func (d *document) read(v pdf.Value) []byte {
	var out []byte
	if v.Kind() == pdf.Array {
		for i := range min(v.Len(), 10_000) {
			out = append(append(out, d.read(v.Index(i))...), '\n')
		}
		return out
	}
	if v.Kind() != pdf.Stream || d.left <= 0 {
		return nil
	}
	in := v.Reader()
	defer in.Close()
	out, _ = io.ReadAll(io.LimitReader(in, d.left)) // a stream that is cut has what came before
	d.left -= int64(len(out))
	return out
}
