package pdf

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ledongthuc/pdf"

	"github.com/uma-serve/uma-serve/model/pdf/pdffile"
)

func TestText(t *testing.T) {
	const table = `/CIDInit /ProcSet findresource begin 12 dict begin begincmap
		1 begincodespacerange <0000> <ffff> endcodespacerange
		2 beginbfchar <0001> <0416> <0002> <d83dde00> endbfchar
		2 beginbfrange <0010> <0012> <0041> <0020> <0021> [<0066006c> <0021>] endbfrange
		endcmap end end`
	composite := pdffile.File("<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Count 1 /Kids [3 0 R] >>",
		"<< /Type /Page /Parent 2 0 R /Contents [5 0 R 6 0 R] /Resources << /Font << /C 4 0 R >> >> >>",
		"<< /Type /Font /Subtype /Type0 /Encoding /Identity-H /ToUnicode 7 0 R /DescendantFonts "+
			"[<< /DW 500 /W [1 [600 700] 16 18 400] >>] >>",
		pdffile.Stream("", "BT /C 10 Tf 1 0 0 1 10 10 Tm <00010002"),
		pdffile.Stream("", "001000110012> Tj [<0020> -300 <0021>] TJ ET"), pdffile.Flate("", table))
	form := pdffile.File("<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Count 1 /Kids [3 0 R] >>",
		"<< /Type /Page /Parent 2 0 R /Contents 5 0 R /Resources << /XObject << /X 6 0 R >> >> >>", pdffile.Font,
		pdffile.Stream("", "/X Do"), pdffile.Stream("/Subtype /Form /Resources << /Font << /F 4 0 R >> >>",
			"BT /F 9 Tf (in a form) Tj ET"))
	again := pdffile.File("<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Count 1 /Kids [3 0 R] >>",
		"<< /Type /Page /Parent 2 0 R /Contents 5 0 R /Resources << /XObject << /X 5 0 R >> /Font << /F 4 0 R >> >> >>",
		pdffile.Font, pdffile.Stream("/Subtype /Form", "BT /F 9 Tf 0 -10 Td (x) Tj ET /X Do"))
	pages := func(p ...string) []byte { return pdffile.Pages(p...) }
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"lines and pages":  {pages(pdffile.Lines("one", "two"), "", pdffile.Lines("three")), "one\ntwo\n\nthree"},
		"words by moves":   {pages("BT /F 10 Tf 0 0 Td [(Hel) 20 (lo) -320 (world)] TJ ET"), "Hello world"},
		"words by places":  {pages("BT /F 10 Tf 1 0 0 1 0 50 Tm (a) Tj 1 0 0 1 40 50 Tm (b) Tj ET"), "a b"},
		"a paragraph":      {pages("BT /F 10 Tf 0 50 Td (a) Tj 0 -30 Td (b) Tj ET"), "a\n\nb"},
		"escapes":          {pages(`BT /F 10 Tf (\(a\) \101\n\200 b\) \` + "\r\n" + `c) Tj ET`), "(a) A € b) c"},
		"hex, a quote":     {pages("BT /F 10 Tf 12 TL <61 62 6> Tj (c) ' 1 1 (d) \" ET"), "ab`\nc\nd"},
		"an upright line":  {pages("BT /F 10 Tf 0 1 -1 0 9 10 Tm (up) Tj 0 1 -1 0 9 40 Tm (right) Tj ET"), "up right"},
		"an image within":  {pages("BI /W 1 ID (\x00<<[ Tj EIx EI BT /F 9 Tf (behind) Tj ET"), "behind"},
		"a table":          {composite, "Ж😀ABCfl !"},
		"a form":           {form, "in a form"},
		"a form in itself": {again, strings.TrimSuffix(strings.Repeat("x ", maxForms+1), " ")},
		"bytes around":     {append(append([]byte("junk\n"), pages(pdffile.Lines("x"))...), "\x00\x00junk"...), "x"},
		"version 2":        {[]byte(strings.Replace(string(pages(pdffile.Lines("x"))), "-1.4", "-2.0", 1)), "x"},
		"too many ends":    {pages("Q Q ) ] >> } ET BT /F 9 Tf (still) Tj ET"), "still"},
	} {
		t.Run(name, func(t *testing.T) {
			got, _, err := Text(c.data)
			if err != nil || got != c.want {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
}

// What cannot be read is an error that says why, and what to do.
func TestRefusals(t *testing.T) {
	many := make([]string, MaxPages+1)
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"no PDF":    {[]byte("GIF89a"), `it does not begin with %PDF-, but with "GIF89a"`},
		"cut":       {pdffile.Pages(pdffile.Lines("x"))[:300], "it did not come whole"},
		"scanned":   {pdffile.Scan(), "its 1 pages have no text (they are pictures, as a scanner makes them)"},
		"odd fonts": {fontless(), "2 characters are of fonts that do not say which they are"},
		"pages":     {pdffile.Pages(many...), "it has 601 pages, and the limit is 600"},
		"no pages":  {pdffile.Pages(), "it has no pages"},
		"bytes": {pdffile.Pages(pdffile.Lines(strings.Repeat("abcdefgh ", 1<<20))),
			fmt.Sprintf("its text has more than %d bytes", MaxText)},
		"a bomb": {pdffile.Pages(strings.Repeat(" ", 70<<20), strings.Repeat(" ", 70<<20)),
			fmt.Sprintf("its pages have more than %d bytes", maxStream)},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Text(c.data)
			if !errors.Is(err, ErrPDF) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}

// fontless is a file whose only font has no table of characters.
func fontless() []byte {
	return pdffile.File("<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Count 1 /Kids [3 0 R] >>",
		"<< /Type /Page /Parent 2 0 R /Contents 5 0 R /Resources << /Font << /C 4 0 R >> >> >>",
		"<< /Type /Font /Subtype /Type0 /Encoding /Identity-H /DescendantFonts [<< /DW 500 >>] >>",
		pdffile.Stream("", "BT /C 10 Tf <00010002> Tj ET"))
}

// FuzzText: no file makes Text panic, and no answer is beyond its limits. Files that loop for ever are the process's
// matter that calls it.
func FuzzText(f *testing.F) {
	f.Add(pdffile.Pages(pdffile.Lines("one", "two"), pdffile.Lines("three")))
	f.Add(fontless())
	f.Add(pdffile.Scan())
	f.Add([]byte("%PDF-1.7\n%%EOF"))
	f.Fuzz(func(t *testing.T, data []byte) {
		text, pages, err := Text(data)
		if len(text) > MaxText || err == nil && pages > MaxPages || err != nil && text != "" {
			t.Errorf("%d bytes, %d pages, %v", len(text), pages, err)
		}
		if err != nil && !errors.Is(err, ErrPDF) {
			t.Error(err)
		}
	})
}

// FuzzPage: no operators make a page panic, and its text is bounded.
func FuzzPage(f *testing.F) {
	f.Add([]byte(pdffile.Lines("one", "two")))
	f.Add([]byte("q Q cm [(a) -300 <6>] TJ BI ID EI ' \" T* (\\777) Tj /F 0 Tf 1e400 Td << /a [ ( "))
	f.Fuzz(func(t *testing.T, operators []byte) {
		w := &writer{doc: &document{left: 1 << 20}}
		s := newState()
		s.font, s.size = &font{usual: wide}, 10
		w.run(operators, pdf.Value{}, s, 0)
		if w.out.Len() > MaxText+len(operators)*8 {
			t.Errorf("%d bytes of %d", w.out.Len(), len(operators))
		}
		f := &font{}
		f.readTable(operators)
		if len(f.long) > maxCodes {
			t.Errorf("%d codes", len(f.long))
		}
	})
}
