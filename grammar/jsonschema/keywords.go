package jsonschema

import "slices"

// Support says what becomes of a keyword.
type Support string

const (
	Enforced   Support = "enforced"
	Annotation Support = "ignored" // it says nothing about which values are valid
	Refused    Support = "refused"
)

// Keyword is a row of the table of keywords.
type Keyword struct {
	Names   []string
	Support Support
	Limits  string // what of it is refused, or how it is read
}

// Keywords is every keyword that is known. Others are ignored, as JSON schema says.
var Keywords = []Keyword{
	{[]string{"type"}, Enforced, "lists too; `integer` accepts 1.0 from draft 6 on. Without it a value of any type " +
		"is valid, also beside `items` or `properties`, as JSON Schema has it; llama.cpp takes the type from these"},
	{[]string{"enum", "const"}, Enforced, "values of any type"},
	{[]string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}, Enforced,
		"exact decimals; draft 4's booleans too. Bounded numbers are written without an exponent, except below 1 or " +
			"where only the sign is bounded"},
	{[]string{"multipleOf"}, Enforced, "integers and decimals whose digits, read as an integer, are at most 10,000"},
	{[]string{"minLength", "maxLength"}, Enforced, "in code points"},
	{[]string{"pattern"}, Enforced, "ECMA-262 with look-ahead; back references, look-behind and word boundaries are " +
		"refused"},
	{[]string{"format"}, Enforced, "the formats below; other names are ignored"},
	{[]string{"items", "prefixItems", "additionalItems", "minItems", "maxItems"}, Enforced, "`items` as an array too"},
	{[]string{"contains", "minContains", "maxContains"}, Enforced, "several in one array, or beside `prefixItems`, " +
		"only without counts"},
	{[]string{"uniqueItems"}, Enforced, "of strings, numbers, booleans and null: up to 1,024 items. Refused where " +
		"items may be arrays or objects, and beside `prefixItems` or `contains`; not with `maxItems` of 1"},
	{[]string{"properties", "required", "additionalProperties", "patternProperties", "propertyNames"}, Enforced, ""},
	{[]string{"minProperties", "maxProperties"}, Enforced, "a minimum of up to 1,024 of members that " +
		"`properties` does not list"},
	{[]string{"dependentRequired", "dependentSchemas", "dependencies"}, Enforced, ""},
	{[]string{"allOf", "anyOf"}, Enforced, ""},
	{[]string{"oneOf"}, Enforced, "each branch without the others, where their complements can be written"},
	{[]string{"not", "if", "then", "else"}, Enforced, "where the complement can be written: not of `uniqueItems`, " +
		"nor of a member of which more than 64 and fewer than 1,024 names are possible"},
	{[]string{"$ref", "$defs", "definitions", "$id", "id", "$anchor"}, Enforced,
		"within the schema; nothing is fetched. Before draft 2019-09 the siblings of `$ref` are ignored, as the " +
			"standard says"},
	{[]string{"$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor"}, Enforced,
		"where one schema has the anchor"},
	{[]string{"unevaluatedProperties", "unevaluatedItems"}, Enforced, "where which parts are evaluated does not " +
		"depend on the value: beside `anyOf`, `oneOf`, `if`, `dependentSchemas` or `contains` with such parts they " +
		"are refused"},
	{[]string{"extends", "disallow", "divisibleBy"}, Refused, "draft 3"},
	{[]string{"$schema", "$vocabulary", "$comment", "title", "description", "default", "examples", "example",
		"deprecated", "readOnly", "writeOnly", "contentEncoding", "contentMediaType", "contentSchema", "nullable",
		"discriminator"}, Annotation, "and every name that is not in this table"},
}

// checkKeywords refuses the keywords of p that would change which values are valid, and are not enforced.
func (c *compiler) checkKeywords(p *place) {
	for _, m := range p.v.members {
		if slices.Contains(refusedKeywords, m.name) {
			c.refuse(p, m.name, "the keyword is not supported")
		}
	}
}

var refusedKeywords = func() []string {
	var out []string
	for _, k := range Keywords {
		if k.Support == Refused {
			out = append(out, k.Names...)
		}
	}
	return out
}()
