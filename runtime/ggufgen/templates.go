package ggufgen

// Markers of the generated vocabulary; each is one control token.
const (
	tokenEndOfText  = "<|endoftext|>"
	tokenIMStart    = "<|im_start|>"
	tokenIMEnd      = "<|im_end|>"
	tokenThinkStart = "<think>"
	tokenThinkEnd   = "</think>"
)

// ChatMLDropThinking is a ChatML template that removes the thinking of past assistant turns, as reasoning models'
// templates do: the history a client sends back renders to other tokens than were generated. With enable_thinking
// true the generation prompt opens <think>; with false it holds an empty, closed one; undefined, neither.
const ChatMLDropThinking = `{%- for message in messages %}
    {%- set content = message['content'] %}
    {%- if message['role'] == 'assistant' and '</think>' in content %}
        {%- set content = content.split('</think>')[-1].lstrip('\n') %}
    {%- endif %}
    {{- '<|im_start|>' + message['role'] + '\n' + content + '<|im_end|>' + '\n' }}
{%- endfor %}` + chatMLGeneration

// ChatMLKeepThinking renders every message as it is: a turn's rendering stays a prefix of the next one's.
const ChatMLKeepThinking = `{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}
{%- endfor %}` + chatMLGeneration

const chatMLGeneration = `
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined %}
        {%- if enable_thinking %}
            {{- '<think>\n' }}
        {%- else %}
            {{- '<think>\n\n</think>\n\n' }}
        {%- endif %}
    {%- endif %}
{%- endif %}`
