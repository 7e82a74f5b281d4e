package picture

import (
	"encoding/binary"

	"github.com/uma-serve/uma-serve/runtime"
)

// orientation returns the EXIF orientation of a JPEG, 1 … 8; 1 = as it is stored, also where there is none. Damaged
// metadata count as none: the pixels do not depend on them.
func orientation(data []byte) int {
	for at := 2; at+4 <= len(data) && data[at] == 0xFF; {
		kind, n := data[at+1], int(binary.BigEndian.Uint16(data[at+2:]))
		if kind == 0xDA || n < 2 || at+2+n > len(data) { // the pixels begin
			break
		}
		if body := data[at+4 : at+2+n]; kind == 0xE1 && len(body) > 14 && string(body[:6]) == "Exif\x00\x00" {
			return tiffOrientation(body[6:])
		}
		at += 2 + n
	}
	return 1
}

// tiffOrientation reads tag 0x0112 of the first directory.
func tiffOrientation(tiff []byte) int {
	var order binary.ByteOrder
	switch string(tiff[:2]) {
	case "II":
		order = binary.LittleEndian
	case "MM":
		order = binary.BigEndian
	default:
		return 1
	}
	dir := uint64(order.Uint32(tiff[4:]))
	if dir+2 > uint64(len(tiff)) {
		return 1
	}
	entries := tiff[dir+2:]
	for range order.Uint16(tiff[dir:]) {
		if len(entries) < 12 {
			break
		}
		if order.Uint16(entries) == 0x0112 {
			if v := int(order.Uint16(entries[8:])); v >= 1 && v <= 8 {
				return v
			}
			break
		}
		entries = entries[12:]
	}
	return 1
}

// turn turns and mirrors p's pixels for an orientation.
func turn(p *runtime.Picture, orientation int) {
	if orientation == 1 {
		return
	}
	w, h := p.Width, p.Height
	swapped := orientation >= 5
	if swapped {
		w, h = h, w
	}
	out := make([]byte, len(p.RGB))
	for y := range h {
		for x := range w {
			sx, sy := x, y // of the stored picture
			if swapped {
				sx, sy = y, x
			}
			switch orientation {
			case 2, 7, 3, 8:
				sx = p.Width - 1 - sx
			}
			switch orientation {
			case 3, 4, 6, 7:
				sy = p.Height - 1 - sy
			}
			copy(out[3*(y*w+x):3*(y*w+x)+3], p.RGB[3*(sy*p.Width+sx):])
		}
	}
	p.Width, p.Height, p.RGB = w, h, out
}
