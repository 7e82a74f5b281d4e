package anthropic

import (
	"fmt"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/api"
)

// clientTool is a tool that Anthropic defines and the client runs. A request names its type alone; here the model gets
// its definition as that of any other tool.
type clientTool struct {
	kind        string // its type without the date of its version
	name        string // where the request gives none
	description string
	schema      string
}

// The schemas are those that Anthropic publishes; of versions that differ in a field, they take both.
const (
	editorMembers = `"path":{"type":"string","description":"Absolute path of a file or folder"},` +
		`"view_range":{"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":2,` +
		`"description":"With view: the first line, from 1, and the last; -1: to the end"},` +
		`"file_text":{"type":"string","description":"With create: the content of the file"},` +
		`"old_str":{"type":"string","description":"With str_replace: the text to replace, which must be there once"},` +
		`"new_str":{"type":"string","description":"With str_replace: the text in its place"},` +
		`"insert_line":{"type":"integer","description":"With insert: the line after which, 0 for the beginning"},` +
		`"insert_text":{"type":"string","description":"With insert: the text"}`
	closed = `,"additionalProperties":false}`
)

var clientTools = []clientTool{
	{"bash", "bash", "Runs a command in a bash shell that lasts from call to call. restart: true starts it anew.",
		`{"type":"object","properties":{"command":{"type":"string","description":"The command to run"},` +
			`"restart":{"type":"boolean","description":"true: start the shell anew, without a command"}}` + closed},
	{"text_editor", "str_replace_based_edit_tool", "Views, creates and edits text files.",
		`{"type":"object","properties":{"command":{"enum":["view","create","str_replace","insert"]},` + editorMembers +
			`},"required":["command","path"]` + closed},
	{"memory", "memory", "Keeps files below /memories from conversation to conversation. View /memories before a " +
		"task, and note there what later conversations need.",
		`{"type":"object","properties":{"command":{"enum":["view","create","str_replace","insert","delete",` +
			`"rename"]},` +
			editorMembers + `,"old_path":{"type":"string","description":"With rename"},` +
			`"new_path":{"type":"string","description":"With rename"}},"required":["command"]` + closed},
	{"computer", "computer", "Uses the mouse and the keyboard of a computer.",
		`{"type":"object","properties":{"action":{"enum":["key","type","mouse_move","left_click","left_click_drag",` +
			`"right_click","middle_click","double_click","triple_click","left_mouse_down","left_mouse_up","scroll",` +
			`"hold_key","wait","screenshot","cursor_position","zoom"]},` +
			`"coordinate":{"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":2,` +
			`"description":"x and y in pixels"},` +
			`"start_coordinate":{"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":2,` +
			`"description":"With left_click_drag"},` +
			`"text":{"type":"string","description":"With type: the text; with key and hold_key: the keys; ` +
			`with clicks and scroll: the keys that are held"},` +
			`"scroll_direction":{"enum":["up","down","left","right"]},"scroll_amount":{"type":"integer","minimum":0},` +
			`"duration":{"type":"number","description":"With hold_key and wait: seconds"},` +
			`"region":{"type":"array","items":{"type":"integer"},"minItems":4,"maxItems":4,` +
			`"description":"With zoom: x and y of two corners"}},"required":["action"]` + closed},
}

// clientToolOf returns the definition of a tool that the client runs; nil: its type is no such tool's.
func clientToolOf(t *tool) *api.Function {
	for i := range clientTools {
		c := &clientTools[i]
		version, ok := strings.CutPrefix(*t.Type, c.kind+"_")
		if !ok || len(version) != len("20250124") || strings.Trim(version, "0123456789") != "" {
			continue
		}
		f := &api.Function{Name: t.Name, Description: c.description, Parameters: rawJSON(c.schema), Strict: t.Strict}
		if f.Name == "" {
			f.Name = c.name
		}
		if t.Width > 0 && t.Height > 0 {
			f.Description += fmt.Sprintf(" The screen has %d × %d pixels.", t.Width, t.Height)
		}
		return f
	}
	return nil
}
