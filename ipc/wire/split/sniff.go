package split

import "bytes"

// Protocol is the protocol of a connection.
type Protocol uint8

const (
	Unknown Protocol = iota // more bytes are needed
	Framed                  // uint32 length | JSON
	HTTP                    // HTTP/1.1, for net/http
	Newline                 // a line of text is a prompt
)

func (p Protocol) String() string {
	switch p {
	case Framed:
		return "framed"
	case HTTP:
		return "http"
	case Newline:
		return "newline"
	}
	return "unknown"
}

// HTTPStarts are the first four bytes of the methods of RFC 9110 and 5789, and of HTTP/2's preface, which net/http
// then refuses in words a client understands.
var HTTPStarts = [...]string{"GET ", "POST", "HEAD", "PUT ", "DELE", "OPTI", "PATC", "CONN", "TRAC", "PRI "}

// Sniff determines the protocol of a connection from its first bytes. Four bytes always decide: a frame is shorter than
// 16 MiB, so its fourth byte is 0; HTTP starts with a method; anything else is text. With fewer bytes only a NUL
// decides, since text has none and a short frame has two.
//
// A text of fewer than four bytes ("hi\n") could also be the start of a frame's length. It stays Unknown until
// noMore is set, which says that the peer ended its side or has sent nothing more for SniffGraceMs: then it is text.
func Sniff(first []byte, noMore bool) Protocol {
	if len(first) < 4 {
		switch {
		case bytes.IndexByte(first, 0) >= 0:
			return Framed
		case noMore && len(first) > 0:
			return Newline
		}
		return Unknown
	}
	if first[3] == 0 {
		return Framed
	}
	for _, m := range HTTPStarts {
		if string(first[:4]) == m {
			return HTTP
		}
	}
	return Newline
}

// SniffGraceMs is the time for which a caller of Sniff waits for the fourth byte, in ms. A client that writes a frame's
// header byte by byte and slower than that is taken for one that sends text.
const SniffGraceMs = 100
