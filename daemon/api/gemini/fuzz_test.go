package gemini_test

import (
	"testing"

	"github.com/uma-serve/uma-serve/daemon/api/apitest"
	"github.com/uma-serve/uma-serve/daemon/api/gemini"
)

var seeds = []string{
	`{"contents":[{"role":"user","parts":[{"text":"x"}]}],"systemInstruction":{"parts":[{"text":"s"}]},` +
		`"generationConfig":{"temperature":0,"topK":40.0,"maxOutputTokens":5,"stopSequences":["a"],` +
		`"candidateCount":2,"thinkingConfig":{"includeThoughts":true,"thinkingBudget":9}}}`,
	`{"contents":[{"role":"model","parts":[{"text":"t","thought":true},{"functionCall":{"name":"f",` +
		`"args":{"a_b":1}},"thoughtSignature":"s"}]},{"role":"user","parts":[{"functionResponse":{"name":"f",` +
		`"response":{"output":"x"}}},{"inlineData":{"mimeType":"image/png","data":"eA=="}}]}],` +
		`"tools":[{"functionDeclarations":[{"name":"f",` +
		`"parameters":{"type":"OBJECT","properties":{"a":{"type":"STRING","nullable":true}},` +
		`"propertyOrdering":["a"]}}]},{"googleSearch":{}}],"toolConfig":{` +
		`"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["f"]}}}`,
	`{"contents":[{"parts":[{"text":"x"}]}],"generation_config":{"response_mime_type":"application/json",` +
		`"response_schema":{"type":"ARRAY","items":{"any_of":[{"type":"INTEGER"}]},"min_items":"1"},` +
		`"response_logprobs":true,"logprobs":2}}`,
	`{"contents":[{"parts":[{"text":"x"}]}],"generationConfig":{"responseMimeType":"text/x.enum",` +
		`"responseSchema":{"type":"STRING","enum":["a","b"]}}}`,
}

func FuzzGenerateContent(f *testing.F) {
	apitest.FuzzAt(f, gemini.Routes, "/v1beta/models/{id...}", "/v1beta/models/m:generateContent", seeds...)
}

func FuzzStreamGenerateContent(f *testing.F) {
	apitest.FuzzAt(f, gemini.Routes, "/v1beta/models/{id...}", "/v1beta/models/m:streamGenerateContent", seeds...)
}

func FuzzCountTokens(f *testing.F) {
	apitest.FuzzAt(f, gemini.Routes, "/v1beta/models/{id...}", "/v1beta/models/m:countTokens",
		append(seeds, `{"generateContentRequest":`+seeds[0]+`}`)...)
}
