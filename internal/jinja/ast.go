package jinja

// pos is the template line a node begins on, counted from 1.
type pos struct{ line int }

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
		recursive bool
		body      []node
		elseBody  []node
	}
	setNode struct {
		pos
		target  target
		value   expr
		body    []node // {% set x %}…{% endset %}, when value is nil
		filters []filterCall
	}
	macroNode struct {
		pos
		name   string
		params []param
		body   []node
	}
	callNode struct { // {% call(params) f(x) %}…{% endcall %}
		pos
		call  expr
		macro *macroNode
	}
	filterNode struct { // {% filter upper %}…{% endfilter %}
		pos
		filters []filterCall
		body    []node
	}
	withNode struct {
		pos
		names  []target
		values []expr
		body   []node
	}
	generationNode struct{ body []node }
	loopControl    struct {
		pos
		stop bool // break; else continue
	}
)

type node any

type param struct {
	name  string
	value expr // default, or nil
}

// target is what set and for assign to: a name, a namespace's attribute, or a tuple of targets.
type target struct {
	name  string
	attr  string // non-empty: name.attr
	tuple []target
}

// Expressions.
type (
	literal  struct{ value any }
	nameExpr struct {
		pos
		name string
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
	name string
	args args
}
