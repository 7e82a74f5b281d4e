// Package toolcall reads the tool calls that a model writes into its answer, while it writes them.
//
// Every model family has a syntax: the texts around a call, and how name and arguments are written between them. The
// syntaxes are data (Syntaxes); one parser reads them all. Detect finds a model's syntax by rendering a known call with
// its chat template and reading it back. Text is what a grammar must hold a call to, as data.
//
// syntaxes.go is the table of syntaxes, parser.go decides which part of an answer is a call, package stream reads the
// values in it, and part.go is the text of a call as a grammar holds it.
//
// The package is pure. It knows neither the wire protocol nor the scheduler; its Tool, Choice and Event are values.
package toolcall

// Tool is a function that a request offers to the model.
type Tool struct {
	Name        string
	Description string
	Parameters  []byte // JSON Schema of the arguments' object; empty: any object
	Strict      bool   // the arguments must be held to Parameters
}

// Mode is the choice of tools (tool_choice): free, none, or a call that is required.
type Mode uint8

const (
	Auto     Mode = iota // the model decides
	None                 // it must not
	Required             // it must call one of the tools
	Named                // it must call Choice.Name
)

// Choice is a request's tool_choice.
type Choice struct {
	Mode Mode
	Name string // with Named
}

// Kind of an Event.
type Kind uint8

const (
	Text      Kind = iota // text of the answer
	Start                 // a call begins: Name, and ID where the model wrote one
	Arguments             // more of the call's arguments, JSON text
	End                   // the call is complete: its arguments together are a JSON object
	Malformed             // text that looked like a call and is none; it belongs to the answer
)

// Event is a part of what the model said. The slices are valid until the Parser's next call.
type Event struct {
	Kind   Kind
	Index  int    // of the call in the answer, from 0; of a Malformed one that has a Start; else -1
	ID     string // as the model wrote it, or ""
	Name   string
	Text   []byte // of Text, Arguments and Malformed
	Reason Reason // of Malformed
}

// Reason says why a text that looked like a call is none.
type Reason string

const (
	NoCall      Reason = "no_call"      // markers of a call with none between them
	NoName      Reason = "no_name"      // a call without the name of a tool
	UnknownTool Reason = "unknown_tool" // a call of a tool that the request does not offer
	BadArgs     Reason = "arguments"    // arguments that are no object in the syntax's notation
	Unfinished  Reason = "unfinished"   // the answer ended within a call
	TooLong     Reason = "too_long"     // a call longer than Options.MaxBytes
	OwnTool     Reason = "own_tool"     // a message to a tool that the model was trained with; its text is left out
)

// Reasons are all reasons, for metrics and documents.
var Reasons = []Reason{NoCall, NoName, UnknownTool, BadArgs, Unfinished, TooLong, OwnTool}

// Explain returns what r says of a call, for "The call …".
func (r Reason) Explain() string {
	switch r {
	case NoCall:
		return "markers of a call had no call between them"
	case NoName:
		return "it names no tool"
	case UnknownTool:
		return "it names a tool that the request does not offer"
	case BadArgs:
		return "its arguments are not an object in the syntax's notation"
	case Unfinished:
		return "the answer ended within it"
	case OwnTool:
		return "it is for a tool that the model was trained with, and no request offers it"
	}
	return "it is too long"
}

// Call is a complete call.
type Call struct {
	ID, Name  string
	Arguments string // a JSON object
}

// Collect gathers events into the answer's text and its complete calls. A call that began and turned out to be
// malformed is not among them: its text is.
type Collect struct {
	Text    []byte
	Calls   []Call
	Reasons []Reason
	open    Call
}

// Add takes the events of one Push or Finish.
func (c *Collect) Add(events []Event) {
	for i := range events {
		switch e := &events[i]; e.Kind {
		case Text:
			c.Text = append(c.Text, e.Text...)
		case Start:
			c.open = Call{ID: e.ID, Name: e.Name}
		case Arguments:
			c.open.Arguments += string(e.Text)
		case End:
			c.Calls = append(c.Calls, c.open)
		case Malformed:
			c.Text = append(c.Text, e.Text...)
			c.Reasons = append(c.Reasons, e.Reason)
		}
	}
}
