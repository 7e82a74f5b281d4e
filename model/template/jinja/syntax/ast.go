package syntax

// pos is the template line a node begins on, counted from 1.
type pos struct{ Line int }

// Scope is the names that one piece of a template may assign: the template itself, the body of a loop, macro, with,
// call, capture or block. {% if %} opens none. At run time a frame holds the values.
type Scope struct {
	parent   *Scope
	Slots    map[string]int
	Size     int
	Captured bool       // a macro, or a loop variable that is read, may keep a frame of it
	macro    *MacroNode // of a macro's or call block's own scope
}

func newScope(parent *Scope) *Scope { return &Scope{parent: parent} }

// slot declares name and returns its index in a frame of this scope.
func (sc *Scope) slot(name string) int {
	i, ok := sc.Slots[name]
	if !ok {
		if sc.Slots == nil {
			sc.Slots = map[string]int{}
		}
		i = sc.Size
		sc.Slots[name] = i
		sc.Size++
	}
	return i
}

// capture marks this scope and those around it as captured.
func (sc *Scope) capture() {
	for ; sc != nil && !sc.Captured; sc = sc.parent {
		sc.Captured = true
	}
}

// place is a frame, so many scopes outward, and a slot in it.
type place struct{ Hops, Slot int }

// Statements.
type (
	TextNode   struct{ Text string }
	OutputNode struct {
		pos
		Expr Expr
	}
	IfNode struct {
		pos
		Conds  []Expr
		Bodies [][]Node // one more than conds when there is an else
	}
	ForNode struct {
		pos
		Target    Target
		Iter      Expr
		Filter    Expr // the "if" of the loop head, or nil
		Test      *Scope
		Scope     *Scope
		Recursive bool
		Body      []Node
		ElseScope *Scope
		ElseBody  []Node
		// Settles: the body is one {% if %} and, for each of its branches, whether a pass that takes the branch
		// proves that all further passes take it and do nothing.
		Settles []bool
	}
	SetNode struct {
		pos
		Target  Target
		Value   Expr
		Scope   *Scope
		Body    []Node // {% set x %}…{% endset %}, when value is nil
		Filters []FilterCall
	}
	MacroNode struct {
		pos
		Name                    string
		Slot                    int
		Params                  []param
		Scope                   *Scope
		Body                    []Node
		Caller, Kwargs, Varargs int // slots of what the body uses beside the parameters; -1 when it does not
	}
	CallNode struct { // {% call(params) f(x) %}…{% endcall %}
		pos
		Call  *CallExpr // nil for {% generation %}
		Macro *MacroNode
	}
	FilterNode struct { // {% filter upper %}…{% endfilter %}
		pos
		Filters []FilterCall
		Scope   *Scope
		Body    []Node
	}
	WithNode struct {
		pos
		Targets []Target
		Values  []Expr
		Scope   *Scope
		Body    []Node
	}
	AutoescapeNode struct {
		pos
		Value Expr
		Scope *Scope
		Body  []Node
	}
	BlockNode struct {
		pos
		name   string
		Scoped bool
		Scope  *Scope
		Body   []Node
	}
	OtherFile struct { // include, import, from, extends: fails when reached
		pos
		Name string
	}
	LoopControl struct{ Stop bool } // break; else continue
)

type Node any

type param struct {
	Name  string
	Slot  int
	Value Expr // default, or nil
}

// Target is the left-hand side of set and for: a name of the innermost scope, a namespace's attribute, or several
// targets.
type Target struct {
	Slot  int
	Space *NameExpr // not nil: space.attr
	Attr  string
	Tuple []Target
}

// Expressions.
type (
	Literal  struct{ Value any }
	NameExpr struct {
		pos
		Name   string
		scope  *Scope
		Places []place // innermost first
		Global int
	}
	ListExpr struct {
		pos
		Items []Expr
		Tuple bool
	}
	DictExpr struct {
		pos
		Keys, Values []Expr
	}
	AttrExpr struct { // a.b
		pos
		Of   Expr
		Name string
	}
	ItemExpr struct { // a[b]
		pos
		Of, Key Expr
	}
	SliceExpr struct { // a[b:c:d], nil where left out
		pos
		Of, Start, Stop, Step Expr
	}
	CallExpr struct {
		pos
		Fn   Expr
		Args Args
	}
	FilterExpr struct {
		Of   Expr
		Call FilterCall
	}
	TestExpr struct {
		pos
		Of     Expr
		Name   string
		Args   Args
		Negate bool
	}
	CondExpr struct{ Cond, Then, Other Expr } // other nil: undefined
	NotExpr  struct{ Of Expr }
	SignExpr struct {
		pos
		Of  Expr
		Neg bool
	}
	LogicExpr struct {
		Left, Right Expr
		Or          bool
	}
	ConcatExpr struct {
		pos
		Items []Expr
	}
	BinaryExpr struct {
		pos
		Op          string
		Left, Right Expr
	}
	CompareExpr struct {
		pos
		First Expr
		Ops   []string
		Rest  []Expr
	}
)

type Expr any

type Args struct {
	List     []Expr
	Names    []string // keyword arguments
	Values   []Expr
	Star     Expr // *args
	StarStar Expr // **kwargs
}

type FilterCall struct {
	pos
	Name string
	Args Args
}
