package template

// Change is a change of a conversation that makes the template render all of it.
type Change struct {
	Reason string // short and stable
	Text   string // a sentence
	Times  int
}

type changeKind uint8

const (
	developerAsSystem changeKind = iota
	systemsJoined
	systemInUser
	laterSystem
	neighboursJoined
	userAdded
	answerAdded
	userInResult
	emptyLeftOut
	resultAdded
	resultAsText
	callsAsText
	textInThought
	textBeforeCalls
	resultsSorted
	toolsAsText
	rearranged
	changeKinds
)

// changeTexts are the reason and the sentence of each kind. docs/templates.md lists them.
var changeTexts = [changeKinds][2]string{
	developerAsSystem: {"developer_as_system", "A developer message was rendered as a system message: the chat " +
		"template has no role developer there."},
	systemsJoined: {"systems_joined", "System messages at the start were joined: the chat template takes one."},
	systemInUser: {"system_in_user", "The system message was put before the first user message: the chat template " +
		"takes none."},
	laterSystem: {"later_system", "A system message behind the first turn was put into the user message beside it: " +
		"the chat template refuses, loses or moves it."},
	neighboursJoined: {"neighbours_joined", "Neighbouring messages of one role were joined: the chat template wants " +
		"roles that alternate."},
	userAdded: {"user_added", "A user message was added: the chat template must have one there."},
	answerAdded: {"answer_added", "An empty assistant message was added between a tool's result and a user message: " +
		"the chat template does not take one behind the other."},
	userInResult: {"user_in_result", "A user message was appended to the tool's result before it: the chat template " +
		"does not take one behind the other."},
	emptyLeftOut: {"empty_left_out", "An assistant message without text was left out: the chat template does not " +
		"take it."},
	resultAdded: {"result_added", "A result was added to a call without one: the chat template must have one."},
	resultAsText: {"result_as_text", "A tool's result was rendered as text of a user message: the chat template has " +
		"no place for it there."},
	callsAsText: {"calls_as_text", "Tool calls were rendered as text of the assistant message: the chat template " +
		"does not render them as they are."},
	textInThought: {"text_in_thought", "Text beside tool calls was appended to the thought before them: the chat " +
		"template does not take both."},
	textBeforeCalls: {"text_before_calls", "Text beside tool calls became a message before them: the chat template " +
		"leaves it out once an answer follows."},
	resultsSorted: {"results_sorted", "Results were put into the order of their calls: the chat template shows no " +
		"call ids."},
	toolsAsText: {"tools_as_text", "The tools were described in the system message: the chat template fails with " +
		"them."},
	rearranged: {"rearranged", "The conversation was rendered in strict turns of user and assistant: the chat " +
		"template refused it otherwise, or left out a text."},
}

// changeCount counts what was changed.
type changeCount [changeKinds]int

func (c *changeCount) add(k changeKind) { c[k]++ }

func (c *changeCount) list() (out []Change) {
	for k, n := range c {
		if n > 0 {
			out = append(out, Change{changeTexts[k][0], changeTexts[k][1], n})
		}
	}
	return out
}
