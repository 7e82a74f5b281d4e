package gemini

import (
	"encoding/json"
	"slices"

	"github.com/uma-serve/uma-serve/daemon/api"
)

type rawJSON = json.RawMessage

// contentTable lists the fields of generateContent and streamGenerateContent.
var contentTable = slices.Concat(
	api.Of(api.Taken, "contents", "systemInstruction", "tools", "toolConfig", "generationConfig"),
	api.Of(api.Ignored, "model", "safetySettings", "labels", "store", "serviceTier", "modelArmorConfig",
		"generationOutputConfig", "id", "metadata"),
	api.Table{
		{Name: "cachedContent", Use: api.Refused, But: []string{`""`},
			Why: "there are no stored contents; send the whole contents, whose beginning is cached"},
		{Name: "continuationToken", Use: api.Refused, But: []string{`""`}, Why: "send the whole contents"},
		{Name: "messages", Use: api.Refused, Why: `here it is "contents"`},
		{Name: "prompt", Use: api.Refused, Why: `here it is "contents"`},
	},
)

// countTable lists the fields of countTokens. All others of generateContent may be in generateContentRequest.
var countTable = slices.Concat(
	api.Of(api.Taken, "contents", "systemInstruction", "tools", "toolConfig", "generationConfig",
		"generateContentRequest"),
	api.Of(api.Ignored, "model", "id", "metadata"),
)

// configTable lists the fields of generationConfig.
var configTable = slices.Concat(
	api.Of(api.Taken, "temperature", "topP", "topK", "maxOutputTokens", "stopSequences", "seed", "candidateCount",
		"presencePenalty", "frequencyPenalty", "responseLogprobs", "logprobs", "responseMimeType", "responseSchema",
		"responseJsonSchema", "responseFormat", "responseModalities", "thinkingConfig"),
	api.Of(api.Ignored, "mediaResolution", "audioTimestamp", "enableAffectiveDialog", "enableEnhancedCivicAnswers",
		"routingConfig", "modelSelectionConfig"),
	api.Table{
		{Name: "speechConfig", Use: api.Refused, Why: "answers are text"},
		{Name: "imageConfig", Use: api.Refused, Why: "answers are text"},
		{Name: "translationConfig", Use: api.Refused, Why: "answers are text"},
		{Name: "audioTranscriptionConfig", Use: api.Refused, Why: "answers are text"},
	},
)

type body struct {
	Contents []content   `json:"contents"`
	System   *content    `json:"systemInstruction"`
	Tools    []tool      `json:"tools"`
	Choice   *toolConfig `json:"toolConfig"`
	Config   rawJSON     `json:"generationConfig"`
	Counted  rawJSON     `json:"generateContentRequest"` // of countTokens
}

type content struct {
	Role  string `json:"role"` // "user", "model", or absent
	Parts []part `json:"parts"`
}

// part is one of its members. In an answer it has those without a comment.
type part struct {
	_ struct{} `ignored:"videoMetadata,mediaResolution,partMetadata,mediaProcessing,speechMetadata,documentMetadata"`
	_ struct{} `ignored:"spreadsheetMetadata,audioMetadata,audioTranscription"`

	Text     *string   `json:"text,omitempty"`
	Thought  bool      `json:"thought,omitempty"`
	Call     *call     `json:"functionCall,omitempty"`
	Response *response `json:"functionResponse,omitempty"` // of the client, as all below

	Signature string       `json:"thoughtSignature,omitempty"` // of another server: not used
	Data      *blob        `json:"inlineData,omitempty"`
	File      *fileData    `json:"fileData,omitempty"`
	Code      *code        `json:"executableCode,omitempty"`
	Output    *codeResult  `json:"codeExecutionResult,omitempty"`
	Hosted    *anyToolPart `json:"toolCall,omitempty"`
	HostedOut *anyToolPart `json:"toolResponse,omitempty"`
}

type call struct {
	_    struct{} `ignored:"partialArgs,willContinue"`
	ID   string   `json:"id,omitempty"`
	Name string   `json:"name"`
	Args rawJSON  `json:"args,omitempty"` // an object
}

type response struct {
	_        struct{} `ignored:"willContinue,scheduling"`
	ID       string   `json:"id"`
	Name     string   `json:"name"`
	Response rawJSON  `json:"response"` // an object
	Parts    []part   `json:"parts"`
}

type blob struct {
	_        struct{} `ignored:"displayName"`
	MimeType string   `json:"mimeType"`
	Data     string   `json:"data"` // base64
}

type fileData struct {
	_        struct{} `ignored:"displayName,fileUri"`
	MimeType string   `json:"mimeType"`
}

type code struct {
	_        struct{} `ignored:"id"`
	Language string   `json:"language"`
	Code     string   `json:"code"`
}

type codeResult struct {
	_       struct{} `ignored:"id"`
	Outcome string   `json:"outcome"`
	Output  string   `json:"output"`
}

// anyToolPart is a call of a tool that Google's servers run.
type anyToolPart struct {
	_    struct{} `ignored:"id,args,response"`
	Type string   `json:"toolType"`
}

// tool has function declarations, or is one that Google's servers run.
type tool struct {
	_ struct{} `ignored:"retrieval,computerUse,fileSearch,googleSearch,googleMaps,codeExecution,enterpriseWebSearch"`
	_ struct{} `ignored:"googleSearchRetrieval,parallelAiSearch,urlContext,mcpServers,exaAiSearch"`

	Functions []function `json:"functionDeclarations"`

	hosted []string // the names of its other members that are tools
}

type function struct {
	_           struct{} `ignored:"response,responseJsonSchema,behavior"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Parameters  rawJSON  `json:"parameters"`           // in Google's form of a schema
	JSONSchema  rawJSON  `json:"parametersJsonSchema"` // a JSON schema
}

type toolConfig struct {
	_       struct{}        `ignored:"retrievalConfig,includeServerSideToolInvocations"`
	Calling *functionConfig `json:"functionCallingConfig"`
}

type functionConfig struct {
	_       struct{} `ignored:"streamFunctionCallArguments"`
	Mode    string   `json:"mode"`
	Allowed []string `json:"allowedFunctionNames"`
}

type config struct {
	Temperature    rawJSON         `json:"temperature"`
	TopP           rawJSON         `json:"topP"`
	TopK           rawJSON         `json:"topK"`
	MaxTokens      *float64        `json:"maxOutputTokens"`
	Stop           rawJSON         `json:"stopSequences"`
	Seed           rawJSON         `json:"seed"`
	Answers        *float64        `json:"candidateCount"`
	Presence       rawJSON         `json:"presencePenalty"`
	Frequency      rawJSON         `json:"frequencyPenalty"`
	WithLogprobs   bool            `json:"responseLogprobs"`
	Logprobs       *int            `json:"logprobs"`
	MimeType       string          `json:"responseMimeType"`
	Schema         rawJSON         `json:"responseSchema"`     // in Google's form
	JSONSchema     rawJSON         `json:"responseJsonSchema"` // a JSON schema
	ResponseFormat *responseFormat `json:"responseFormat"`
	Modalities     []string        `json:"responseModalities"`
	Thinking       *thinkingConfig `json:"thinkingConfig"`
}

type responseFormat struct {
	_    struct{}    `ignored:"audio,image,video"`
	Text *textFormat `json:"text"`
}

type textFormat struct {
	MimeType string  `json:"mimeType"`
	Schema   rawJSON `json:"jsonSchema"`
}

type thinkingConfig struct {
	Include bool     `json:"includeThoughts"`
	Budget  *float64 `json:"thinkingBudget"`
	Level   string   `json:"thinkingLevel"`
}
