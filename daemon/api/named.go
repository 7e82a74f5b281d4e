package api

import "regexp"

// Names are the names that the fields of a request have in a body of an API, by those that they have in a request.
type Names map[string]string

// fieldName finds the names of fields in the errors of package wire.
var fieldName = regexp.MustCompile(`\bfield "([a-z_]+)`)

// Of returns err, of a request that was made from a body, with the names of the body's fields: those that the client
// has sent.
func (n Names) Of(err error) error {
	if err == nil {
		return nil
	}
	e := *AsError(err)
	e.Message = fieldName.ReplaceAllStringFunc(e.Message, func(found string) string {
		const begin = `field "`
		if sent := n[found[len(begin):]]; sent != "" {
			return begin + sent
		}
		return found
	})
	return &e
}
