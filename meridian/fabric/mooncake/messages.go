package mooncake

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/uma-serve/uma-serve/meridian/fabric/internal/fault"
)

// A message of struct_pack begins with the hash of its type and the type itself. Both are bound to the signature of the
// method: a master with another signature refuses the call, and an answer of another type is refused here.
var (
	typeKeyQuery = signature("d91ef97c04fd800c800cff00")
	typePutStart = signature("0fbd85e304fdfd04048989ff800c04fd0404040685040b84800c800c84800c0b06800c8584" +
		"800cff800cff00")
	typePutEnd    = signature("239281d104fdfd04048989fffd800c8504ff01800cff00")
	typePutRevoke = signature("8b227a1b04fdfd04048989ff800c01800cff00")
	typeRemove    = signature("ef9fe81804fd800c0b800cff00")
	typeReady     = signature("35ccb31c0487800c0100")
	typeExists    = signature("d300e89004870b0100")
	typeDone      = signature("cd6828af0487fa0100")
	typePlaces    = signature("a72739c4048784" + typeReplica + "0100")
	typePlacesFor = signature("6d27c6880487fd84" + typeReplica + "048504ff0100")
)

// typeReplica is the part of the types for a replica, which is in memory or on disk.
const typeReplica = "fd0486fdfd0404800c800cfffffdfd0404800c800cfffffd800c04fffdfd04048989ff04800cfffd800c0404" +
	"0401ffff01ff"

func signature(digits string) string {
	b, err := hex.DecodeString(digits)
	if err != nil {
		panic(err)
	}
	return string(b)
}

const tenant = "default"

// The master's errors, as far as they are treated differently.
const (
	codeNoSegment = -200 // the nodes have no room, or there is no node
	codeNotReady  = -703 // another client writes it
	codeNotFound  = -704
	codeExists    = -705
	codeLeased    = -706
)

// codeError is an error of the master.
type codeError int32

func (e codeError) Error() string {
	switch e {
	case codeNoSegment:
		return "the master says error -200: no node has room for the value"
	case codeNotReady:
		return "the master says error -703: another client writes the value"
	case codeNotFound:
		return "the master says error -704: no such value"
	case codeExists:
		return "the master says error -705: the value exists"
	case codeLeased:
		return "the master says error -706: a client has a lease on the value"
	}
	return fmt.Sprintf("the master says error %d", int32(e))
}

// isCode reports whether err is one of the master's errors.
func isCode(err error, code codeError) bool {
	var e codeError
	return errors.As(err, &e) && e == code
}

func appendString(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }

// keyQuery is the body of ExistKey and GetReplicaList. name is shorter than 128 bytes, as in all bodies.
func keyQuery(name string) []byte {
	return appendString(appendString([]byte(typeKeyQuery), name), tenant)
}

func removeBody(name string, force bool) []byte {
	b := appendString([]byte(typeRemove), name)
	if force {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	return appendString(b, tenant)
}

// putStartBody asks for one replica of n bytes, with every other setting the master's default.
func putStartBody(client [16]byte, name string, n int) []byte {
	b := appendString(append([]byte(typePutStart), client[:]...), name)
	b = binary.LittleEndian.AppendUint64(b, uint64(n))
	b = binary.LittleEndian.AppendUint64(b, 1)
	return appendString(append(b, make([]byte, 26)...), tenant)
}

func putEndBody(client [16]byte, name string) []byte {
	b := appendString(append([]byte(typePutEnd), client[:]...), name)
	return appendString(append(b, 0, 4, 0, 0, 0), tenant)
}

func putRevokeBody(client [16]byte, name string) []byte {
	b := appendString(append([]byte(typePutRevoke), client[:]...), name)
	return appendString(append(b, 4, 0, 0, 0), tenant)
}

// reader reads an answer. After the first field that is cut off, all others are zero and bad is set.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.b) {
		r.bad = true
		return make([]byte, min(n, 8))
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) byte() byte     { return r.take(1)[0] }
func (r *reader) uint32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) uint64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

func (r *reader) string() string {
	n := int(r.byte())
	if r.bad || n > len(r.b) {
		r.bad = true
		return ""
	}
	return string(r.take(n))
}

// end returns an error unless the whole answer was read.
func (r *reader) end(method string) error {
	if r.bad || len(r.b) > 0 {
		return malformed(method)
	}
	return nil
}

func malformed(method string) error {
	return fmt.Errorf("%w: the answer to %s is malformed", fault.ErrUnavailable, method)
}

// open checks an answer's type, and returns a reader of the value or the master's error.
func open(method, want string, answer []byte) (*reader, error) {
	if len(answer) < len(want) || string(answer[:len(want)]) != want {
		return nil, fmt.Errorf("%w: the answer to %s has type % x, want % x: the master is of a version that is not "+
			"known; known are 0.3.13 and 0.3.14", fault.ErrUnavailable, method, answer[:min(len(answer), 4)], want[:4])
	}
	r := &reader{b: answer[len(want):]}
	switch r.byte() {
	case 1:
		if r.bad {
			return nil, malformed(method)
		}
		return r, nil
	case 0:
		code := codeError(r.uint32())
		if err := r.end(method); err != nil {
			return nil, err
		}
		return nil, code
	}
	return nil, malformed(method)
}

func parseReady(answer []byte) (version string, err error) {
	r, err := open("ServiceReady", typeReady, answer)
	if err != nil {
		return "", err
	}
	version = r.string()
	return version, r.end("ServiceReady")
}

func parseExists(answer []byte) (bool, error) {
	r, err := open("ExistKey", typeExists, answer)
	if err != nil {
		return false, err
	}
	is := r.byte()
	if err := r.end("ExistKey"); err != nil || is > 1 {
		return false, malformed("ExistKey")
	}
	return is == 1, nil
}

func parseDone(method string, answer []byte) error {
	r, err := open(method, typeDone, answer)
	if err != nil {
		return err
	}
	return r.end(method)
}

// place is the location of a value in a node's memory, in bytes.
type place struct {
	size, address uint64
	segment       string // name in the metadata server
}

const complete = 3 // the state of a replica that may be read

// parsePlace returns the first replica in memory of an answer to PutStart, or to GetReplicaList with lease set.
func parsePlace(method string, answer []byte, leased bool) (place, error) {
	want := typePlaces
	if leased {
		want = typePlacesFor
	}
	r, err := open(method, want, answer)
	if err != nil {
		return place{}, err
	}
	count := r.byte()
	if r.bad || count == 0 {
		return place{}, malformed(method)
	}
	var first place
	for i := range count {
		_ = r.uint64() // the replica's number
		if kind := r.byte(); kind != 0 || r.bad {
			// The fields of other kinds are not read. This client asks for memory alone.
			if i > 0 && !r.bad {
				return first, nil
			}
			return place{}, fmt.Errorf("%w: %s: the value is not in a node's memory", fault.ErrUnavailable, method)
		}
		p := place{size: r.uint64(), address: r.uint64()}
		protocol := r.string()
		p.segment = r.string()
		state := r.uint32()
		if r.bad {
			return place{}, malformed(method)
		}
		if protocol != "tcp" {
			return place{}, fmt.Errorf("%w: the node speaks %.40q, want tcp; start mooncake_client with --protocol=tcp",
				fault.ErrUnavailable, protocol)
		}
		if leased && state != complete {
			return place{}, codeError(codeNotReady)
		}
		if i == 0 {
			first = p
		}
	}
	if leased {
		_ = r.uint64() // how long the value is protected, in ms
		if r.byte() != 0 {
			_ = r.uint64() // an optional number, which 0.3.13 leaves out
		}
	}
	return first, r.end(method)
}
