package wire

// The tests of both sides of the protocol are outside this package, because package frames imports it. They know this
// much of its inside.
var (
	ValidID   = validID
	IsInteger = isInteger
	Efforts   = efforts
)

const (
	HeaderBytes = headerBytes
	ImageShut   = imageShut
)

func (m *Message) TakeImages() (moved func(int) int, err error) { return m.takeImages() }

// FieldNames returns the fields of a request, each with its other names.
func FieldNames() map[string][]string {
	names := map[string][]string{}
	for _, f := range fields {
		names[f.name] = f.aliases
	}
	return names
}
