package jinja

// pos is the template line a node begins on, counted from 1.
type pos struct{ line int }

// scope is the names that one piece of a template may assign: the template itself, the body of a loop, macro, with,
// call, capture or block. {% if %} opens none. At run time a frame holds the values.
type scope struct {
	parent *scope
	slots  map[string]int
	size   int
	held   bool       // a macro, or a loop variable that is read, may keep a frame of it
	macro  *macroNode // of a macro's or call block's own scope
}

func newScope(parent *scope) *scope { return &scope{parent: parent} }

// slot declares name and returns its index in a frame of this scope.
func (sc *scope) slot(name string) int {
	i, ok := sc.slots[name]
	if !ok {
		if sc.slots == nil {
			sc.slots = map[string]int{}
		}
		i = sc.size
		sc.slots[name] = i
		sc.size++
	}
	return i
}

// bytes is the memory of a frame of this scope, its loop included.
func (sc *scope) bytes() int { return 2*frameBytes + 16*sc.size }

// hold marks this scope and those around it as held.
func (sc *scope) hold() {
	for ; sc != nil && !sc.held; sc = sc.parent {
		sc.held = true
	}
}

// place is a frame, so many scopes outward, and a slot in it.
type place struct{ hops, slot int }

// Statements.
type (
	textNode   struct{ text string }
	outputNode struct {
		pos
		expr expr
	}
	ifNode struct {
		pos
		conds  []expr
		bodies [][]node // one more than conds when there is an else
	}
	forNode struct {
		pos
		target    target
		iter      expr
		filter    expr // the "if" of the loop head, or nil
		test      *scope
		scope     *scope
		recursive bool
		body      []node
		elseScope *scope
		elseBody  []node
		// settles: the body is one {% if %} and, for each of its branches, whether a pass that takes the branch
		// proves that all further passes take it and do nothing.
		settles []bool
	}
	setNode struct {
		pos
		target  target
		value   expr
		scope   *scope
		body    []node // {% set x %}…{% endset %}, when value is nil
		filters []filterCall
	}
	macroNode struct {
		pos
		name                    string
		slot                    int
		params                  []param
		scope                   *scope
		body                    []node
		caller, kwargs, varargs int // slots of what the body uses beside the parameters; -1 when it does not
	}
	callNode struct { // {% call(params) f(x) %}…{% endcall %}
		pos
		call  *callExpr // nil for {% generation %}
		macro *macroNode
	}
	filterNode struct { // {% filter upper %}…{% endfilter %}
		pos
		filters []filterCall
		scope   *scope
		body    []node
	}
	withNode struct {
		pos
		targets []target
		values  []expr
		scope   *scope
		body    []node
	}
	autoescapeNode struct {
		pos
		value expr
		scope *scope
		body  []node
	}
	blockNode struct {
		pos
		name   string
		scoped bool
		scope  *scope
		body   []node
	}
	otherFile struct { // include, import, from, extends: fails when reached
		pos
		name string
	}
	loopControl struct{ stop bool } // break; else continue
)

type node any

type param struct {
	name  string
	slot  int
	value expr // default, or nil
}

// target is the left-hand side of set and for: a name of the innermost scope, a namespace's attribute, or several
// targets.
type target struct {
	slot  int
	space *nameExpr // not nil: space.attr
	attr  string
	tuple []target
}

// Expressions.
type (
	literal  struct{ value any }
	nameExpr struct {
		pos
		name   string
		scope  *scope
		places []place // innermost first
		global int
	}
	listExpr struct {
		pos
		items []expr
		tuple bool
	}
	dictExpr struct {
		pos
		keys, values []expr
	}
	attrExpr struct { // a.b
		pos
		of   expr
		name string
	}
	itemExpr struct { // a[b]
		pos
		of, key expr
	}
	sliceExpr struct { // a[b:c:d], nil where left out
		pos
		of, start, stop, step expr
	}
	callExpr struct {
		pos
		fn   expr
		args args
	}
	filterExpr struct {
		of   expr
		call filterCall
	}
	testExpr struct {
		pos
		of     expr
		name   string
		test   test // nil: unknown
		args   args
		negate bool
	}
	condExpr struct{ cond, then, other expr } // other nil: undefined
	notExpr  struct{ of expr }
	signExpr struct {
		pos
		of  expr
		neg bool
	}
	logicExpr struct {
		left, right expr
		or          bool
	}
	concatExpr struct {
		pos
		items []expr
	}
	binaryExpr struct {
		pos
		op          string
		left, right expr
	}
	compareExpr struct {
		pos
		first expr
		ops   []string
		rest  []expr
	}
)

type expr any

type args struct {
	list     []expr
	names    []string // keyword arguments
	values   []expr
	star     expr // *args
	starStar expr // **kwargs
}

type filterCall struct {
	pos
	name   string
	filter filter // nil: unknown
	args   args
}
