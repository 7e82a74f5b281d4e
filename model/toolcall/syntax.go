package toolcall

// Syntax is the notation in which a family of models writes calls. A list of texts holds alternatives: all are read,
// the first is written. White space between the parts is free.
//
//	Open Before name Middle arguments After … Close
type Syntax struct {
	Name string // as docs/tools.md lists it

	Open, Close []string // around the calls of a section; Open is empty where a call has no more than Before
	Before      []string // begins a call
	Middle      []string // between name and arguments; of an Envelope: calls may also be written as Keywords
	After       []string // ends a call
	Bare        bool     // a call may also be at the beginning of the answer without Open
	Weak        []string // likewise Open, but ordinary text unless what follows names a tool

	Notation Notation
	Keys     Keys     // of an Envelope
	Params   Params   // of Tagged
	Quote    string   // of Braces: around strings
	ID       []string // between name and an id, which Middle follows
	NameTag  string   // the name is the word after this text
	Prefix   string   // before the name, which may lack it
	Suffixed bool     // ":" and a number follow the name; all of it is the call's id
	Escaped  bool     // names and keys are escaped as in XML attributes

	// Heads are the headers of a message that is a call of NAME, or holds one. A model writes them instead of Before
	// and Middle where a router reads headers and hands them on in this syntax (NameTag).
	Heads []string
	// Channels are the channels of such a header, Typed what may be before the name of the arguments' type in it.
	Channels []string
	Typed    string
	// Content begins text of the answer and is not shown.
	Content []string
	// Stop are tokens that end the turn after a call.
	Stop []string
	// Signs identify the syntax in a template that does not render calls: one of these lists, all of whose texts it
	// has.
	Signs [][]string
	// Guess: templates of other syntaxes have Signs too.
	Guess bool
	// Vocab are the tokens by which a vocabulary identifies the syntax of a template that shows tools and renders no
	// calls; nil where they prove nothing.
	Vocab []string
	// Single: the template renders one call of a turn.
	Single bool

	layout layout // of Laid
}

// Notation is the kind of notation of a call's arguments.
type Notation uint8

const (
	Envelope Notation = iota // a JSON object that holds name and arguments; also a list of them
	Keyed                    // a JSON object {"name": arguments}; also a list of them
	Object                   // a JSON object
	Tagged                   // an element for each parameter
	Braces                   // {key:value} with Quote around strings, as Gemma writes it
	Keywords                 // name(key=value, …) as in Python, in a list
)

// Keys are the members of an Envelope.
type Keys struct {
	Name, Arguments, ID []string
}

// Params is the notation of a parameter: Open key Middle value Close.
type Params struct {
	Open, Middle, Close []string
	// Attr is between the key and an attribute that tells the value's type, which Middle follows: "true" or "string"
	// for a string, any other word for JSON.
	Attr []string
	// Pad is a text at both ends of the value that is not part of it.
	Pad string
	// Raw are the texts around a raw value, such as those of CDATA.
	Raw [2]string
	// Nested: the key and Middle follow Close too, and values that are objects or lists are elements again.
	Nested bool
}

// jsonKeys are the members that models use, whatever their template says.
var jsonKeys = Keys{
	Name:      []string{"name", "tool_name", "function_name", "tool"},
	Arguments: []string{"arguments", "parameters", "args", "input", "tool_input"},
	ID:        []string{"id"},
}

// wrappers are members of an Envelope that hold the call's own object.
var wrappers = []string{"function", "tool_call", "function_call"}
