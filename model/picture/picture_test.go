package picture

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"
	"time"
)

// sample is a picture with a different color in each quarter.
func sample(w, h int) *image.NRGBA {
	m := image.NewNRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			m.Set(x, y, color.NRGBA{uint8(200 * (2 * x / w)), uint8(200 * (2 * y / h)), 40, 255})
		}
	}
	return m
}

func pngOf(t testing.TB, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func jpegOf(t testing.TB, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, m, &jpeg.Options{Quality: 95}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gifOf(t testing.TB, frames ...*image.Paletted) []byte {
	t.Helper()
	g := &gif.GIF{}
	for _, f := range frames {
		g.Image, g.Delay = append(g.Image, f), append(g.Delay, 1)
	}
	var b bytes.Buffer
	if err := gif.EncodeAll(&b, g); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// webp is a picture of 1 × 1 pixel, lossless.
var webp, _ = base64.StdEncoding.DecodeString("UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA==")

func TestDecode(t *testing.T) {
	m := sample(8, 6)
	at := func(rgb []byte, i int) [3]byte { return [3]byte(rgb[3*i:]) }
	for name, data := range map[string][]byte{"png": pngOf(t, m), "jpeg": jpegOf(t, m)} {
		p, err := Decode(data)
		if err != nil || p.Width != 8 || p.Height != 6 || len(p.RGB) != 3*8*6 {
			t.Fatalf("%s: %+v, %v", name, p, err)
		}
		if first, last := at(p.RGB, 0), at(p.RGB, 47); first[0] > 30 || first[1] > 30 || last[0] < 170 ||
			last[1] < 170 {
			t.Errorf("%s: %v … %v", name, first, last)
		}
	}
	if p, err := Decode(webp); err != nil || p.Width != 1 || p.Height != 1 {
		t.Errorf("webp: %v, %v", p, err)
	}
	// The first frame of an animation counts.
	red, blue := color.RGBA{255, 0, 0, 255}, color.RGBA{0, 0, 255, 255}
	a := image.NewPaletted(image.Rect(0, 0, 4, 4), color.Palette{red, blue})
	b := image.NewPaletted(image.Rect(0, 0, 4, 4), color.Palette{blue, red})
	if p, err := Decode(gifOf(t, a, b)); err != nil || at(p.RGB, 5) != [3]byte{255, 0, 0} {
		t.Errorf("gif: %v, %v", p, err)
	}
	// Transparent pixels are white, half transparent ones lie on white.
	n := image.NewNRGBA(image.Rect(0, 0, 2, 1))
	n.Set(1, 0, color.NRGBA{0, 0, 0, 128})
	if p, err := Decode(pngOf(t, n)); err != nil || at(p.RGB, 0) != [3]byte{255, 255, 255} || p.RGB[3] != 127 {
		t.Errorf("transparent: %v, %v", p, err)
	}
}

// withOrientation puts EXIF metadata before the pixels of a JPEG.
func withOrientation(data []byte, orientation uint16, order binary.AppendByteOrder, mark string) []byte {
	tiff := append([]byte(mark), 0, 0)
	if mark == "II" {
		tiff[2] = 42
	} else {
		tiff[3] = 42
	}
	tiff = order.AppendUint32(tiff, 8)
	tiff = order.AppendUint16(tiff, 1)
	tiff = order.AppendUint16(tiff, 0x0112)
	tiff = order.AppendUint16(tiff, 3)
	tiff = order.AppendUint32(tiff, 1)
	tiff = order.AppendUint16(tiff, orientation)
	tiff = append(tiff, 0, 0, 0, 0, 0, 0)
	body := append([]byte("Exif\x00\x00"), tiff...)
	out := append([]byte{0xFF, 0xD8, 0xFF, 0xE1}, byte((len(body)+2)>>8), byte(len(body)+2))
	return append(append(out, body...), data[2:]...)
}

// TestOrientation: each of the eight orientations brings the same corner to its place.
func TestOrientation(t *testing.T) {
	data := jpegOf(t, sample(32, 16)) // the corner at the top left is dark, that at the bottom right is yellow
	// where the dark corner of the stored picture is shown: right, bottom
	corners := map[uint16][2]bool{1: {}, 2: {true, false}, 3: {true, true}, 4: {false, true},
		5: {}, 6: {true, false}, 7: {true, true}, 8: {false, true}}
	for o, corner := range corners {
		for mark, order := range map[string]binary.AppendByteOrder{"II": binary.LittleEndian, "MM": binary.BigEndian} {
			p, err := Decode(withOrientation(data, o, order, mark))
			if err != nil {
				t.Fatal(err)
			}
			if w, h := p.Width, p.Height; (o >= 5) != (w == 16 && h == 32) {
				t.Errorf("orientation %d: %d × %d", o, w, h)
			}
			x, y := 0, 0
			if corner[0] {
				x = p.Width - 1
			}
			if corner[1] {
				y = p.Height - 1
			}
			if px := p.RGB[3*(y*p.Width+x):]; px[0] > 40 || px[1] > 40 {
				t.Errorf("orientation %d: the corner at %d, %d is %v", o, x, y, px[:3])
			}
		}
	}
}

// chunk returns a chunk of a PNG.
func chunk(kind string, body []byte) []byte {
	out := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	out = append(append(out, kind...), body...)
	return binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out[4:]))
}

// header returns the beginning of a PNG of that size.
func header(w, h uint32) []byte {
	body := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, w), h)
	return append([]byte("\x89PNG\r\n\x1a\n"), chunk("IHDR", append(body, 8, 2, 0, 0, 0))...)
}

// hostile are files that are refused, by what is wrong with them.
func hostile(t testing.TB) map[string][]byte {
	whole, photo := pngOf(t, sample(64, 64)), jpegOf(t, sample(64, 64))
	animation := gifOf(t, image.NewPaletted(image.Rect(0, 0, 4, 4), color.Palette{color.White}))
	flipped := bytes.Clone(whole)
	flipped[45] ^= 0xFF
	noFrame := bytes.Clone(animation[:bytes.IndexByte(animation, 0x2C)])
	bigFrame := bytes.Clone(animation)
	at := bytes.IndexByte(bigFrame, 0x2C)
	binary.LittleEndian.PutUint16(bigFrame[at+5:], 60000)
	vp8 := append([]byte("RIFF\xff\xff\xff\x7fWEBPVP8 \xff\xff\xff\x7f"), make([]byte, 32)...)
	return map[string][]byte{
		"nothing":              {},
		"one byte":             {0x89},
		"text":                 []byte("hello, I am a picture"),
		"an SVG":               []byte(`<svg xmlns="http://www.w3.org/2000/svg"/>`),
		"a PDF":                []byte("%PDF-1.7 …"),
		"a BMP":                append([]byte("BM"), make([]byte, 60)...),
		"a TIFF":               append([]byte("II*\x00"), make([]byte, 60)...),
		"a PNG of 2³¹ pixels":  header(1<<30, 1<<30),
		"a wide PNG":           header(1<<20, 1),
		"a PNG of 1.6 GB":      header(16000, 16000),
		"a PNG of no pixels":   header(0, 0),
		"a PNG without data":   header(100, 100),
		"a PNG cut in two":     whole[:len(whole)/2],
		"a PNG with a bad sum": flipped,
		"a JPEG cut in two":    photo[:len(photo)/2],
		"a JPEG's first bytes": photo[:4],
		"a JPEG without scan":  {0xFF, 0xD8, 0xFF, 0xD9},
		"a GIF without frames": append(noFrame, 0x3B),
		"a GIF's large frame":  bigFrame,
		"a GIF cut in two":     animation[:20],
		"a WebP of 2 GB":       vp8,
		"a WebP's first bytes": webp[:16],
		"a WebP cut in two":    webp[:26],
		"zeros":                make([]byte, 4096),
	}
}

// TestHostileFiles: each is refused by a sentence, and none takes memory for more than the limit of pixels.
func TestHostileFiles(t *testing.T) {
	for name, data := range hostile(t) {
		if p, err := Decode(data); !errors.Is(err, ErrPicture) || len(err.Error()) > 300 {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
}

// TestSlowFile: a file whose decoding takes too long is given up.
func TestSlowFile(t *testing.T) {
	_, err := decode(pngOf(t, sample(512, 512)), time.Now().Add(-time.Second))
	if !errors.Is(err, ErrPicture) || !strings.Contains(err.Error(), "longer than") {
		t.Error(err)
	}
}

func TestFromText(t *testing.T) {
	for text, want := range map[string]string{
		"data:image/png;base64,aGk=": "hi", "data:;base64,aGk": "hi", "aGk=": "hi", "-_8=": "\xfb\xff",
		"DATA:image/PNG;charset=x;BASE64,aGk=": "hi", " data:image/png;base64,aG\r\nk=\n": "hi", "aG\nk=\n\n": "hi",
		"":                            "is empty",
		" \n":                         "is empty",
		"HTTPS://example.org/a.png":   "fetches nothing",
		"http://example.org/a.png":    "fetches nothing",
		"https://example.org/a.png":   "fetches nothing",
		"file:///etc/passwd":          "fetches nothing",
		"data:image/png,raw":          "no ;base64",
		"data:image/png;base64":       "no ;base64",
		"data:image/png;base64,%%%":   "malformed",
		"data:image/png;base64,":      "malformed",
		"definitely not base64, no, ": "malformed",
	} {
		data, err := FromText(text)
		if err != nil && !strings.Contains(err.Error(), want) || err == nil && string(data) != want {
			t.Errorf("%q: %q, %v", text, data, err)
		}
	}
}

// FuzzDecode: no file ends the process, and none gives a picture whose size is not that of its pixels.
func FuzzDecode(f *testing.F) {
	for _, data := range hostile(f) {
		f.Add(data)
	}
	f.Add(pngOf(f, sample(5, 3)))
	f.Add(withOrientation(jpegOf(f, sample(9, 4)), 6, binary.BigEndian, "MM"))
	f.Add(webp)
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := decode(data, time.Now().Add(time.Second))
		switch {
		case err != nil && !errors.Is(err, ErrPicture):
			t.Errorf("%v", err)
		case err == nil && (p.Width < 1 || p.Height < 1 || len(p.RGB) != 3*p.Width*p.Height):
			t.Errorf("%d × %d, %d bytes", p.Width, p.Height, len(p.RGB))
		}
	})
}
