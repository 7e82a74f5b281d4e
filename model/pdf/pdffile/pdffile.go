// Package pdffile writes PDF files for tests: whole ones, and objects that are wrong.
package pdffile

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"strings"
)

// File returns a file with the objects, of which the first is number 1 and the catalog.
func File(objects ...string) []byte {
	var b bytes.Buffer
	b.WriteString("%PDF-1.4\n")
	at := make([]int, len(objects))
	for i, o := range objects {
		at[i] = b.Len()
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", i+1, o)
	}
	start := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(objects)+1)
	for _, n := range at {
		fmt.Fprintf(&b, "%010d 00000 n \n", n)
	}
	fmt.Fprintf(&b, "trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n", len(objects)+1, start)
	return b.Bytes()
}

// Stream returns an object with the bytes of a stream, and members of its dictionary.
func Stream(members, data string) string {
	return fmt.Sprintf("<< /Length %d %s >>\nstream\n%s\nendstream", len(data), members, data)
}

// Flate is Stream with compressed bytes.
func Flate(members, data string) string {
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	_, _ = z.Write([]byte(data)) // a buffer takes everything
	_ = z.Close()
	return Stream(members+" /Filter /FlateDecode", b.String())
}

// Font is an object: a font that every reader has, with a byte for each character.
const Font = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"

// Pages returns a file whose pages have these operators and the font /F.
func Pages(pages ...string) []byte {
	objects := []string{"<< /Type /Catalog /Pages 2 0 R >>", "", Font}
	var kids []string
	for _, p := range pages {
		n := len(objects) + 1
		kids = append(kids, fmt.Sprintf("%d 0 R", n))
		objects = append(objects, fmt.Sprintf("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents %d 0 R "+
			"/Resources << /Font << /F 3 0 R >> >> >>", n+1), Flate("", p))
	}
	objects[1] = fmt.Sprintf("<< /Type /Pages /Count %d /Kids [%s] >>", len(pages), strings.Join(kids, " "))
	return File(objects...)
}

// Lines returns the operators of lines of text without parentheses.
func Lines(lines ...string) string {
	var b strings.Builder
	b.WriteString("BT /F 12 Tf 14 TL 50 700 Td\n")
	for _, l := range lines {
		fmt.Fprintf(&b, "(%s) Tj T*\n", l)
	}
	b.WriteString("ET\n")
	return b.String()
}

// Scan returns a file of a page that is a picture.
func Scan() []byte { return Pages("q 600 0 0 800 0 0 cm /Im0 Do Q") }
