package api

import (
	"cmp"
	"regexp"
	"strings"
)

// Names are the names that the fields of a request have in a body of an API, by those that they have in a request. Of a
// member of an element it is the text that follows the element: "tools.function.parameters" may be ".input_schema".
type Names map[string]string

// fieldName finds the names of fields in the errors of package wire: a field, its element, a member of that.
var fieldName = regexp.MustCompile(`\bfield "([a-z_]+)((?:\[\d+\])?)((?:\.[a-z_]+)*)`)

// Of returns err, of a request that was made from a body, with the names of the body's fields: those that the client
// has sent.
func (n Names) Of(err error) error {
	if err == nil {
		return nil
	}
	e := *AsError(err)
	e.Message = fieldName.ReplaceAllStringFunc(e.Message, func(found string) string {
		parts := fieldName.FindStringSubmatch(found)
		field, element, member := parts[1], parts[2], parts[3]
		for head := member; head != ""; head = head[:strings.LastIndexByte(head, '.')] {
			if sent, ok := n[field+head]; ok {
				member = sent + member[len(head):]
				break
			}
		}
		return `field "` + cmp.Or(n[field], field) + element + member
	})
	return &e
}
