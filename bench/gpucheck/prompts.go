package gpucheck

// prompts are sent to both sides: facts, code, lists, numbers, other languages.
var prompts = []string{
	"The capital of France is",
	"Water boils at a temperature of",
	"def fibonacci(n):\n    \"\"\"Return the n-th number of the series.\"\"\"\n",
	"Three reasons to write tests before the code:\n1.",
	"The quick brown fox jumps over the lazy dog. In other words,",
	"SELECT name, count(*) FROM visits GROUP BY",
	"Die Hauptstadt von Italien heißt",
	"{\"name\": \"Ada\", \"born\": 1815, \"languages\": [",
	"Once upon a time a lighthouse keeper found",
	"The sum of 17 and 25 is",
	"package main\n\nimport \"fmt\"\n\nfunc main() {\n",
	"Un, deux, trois,",
	"A recipe for pancakes needs flour,",
	"The planets in order of distance from the sun are Mercury,",
	"Q: What is the largest ocean?\nA:",
	"#include <stdio.h>\n\nint main(void) {\n",
	"Dear customer, thank you for",
	"In 1969 the first people",
	"<html>\n<head>\n<title>",
	"El perro y el gato",
	"To sort a list in place, Python has",
	"The opposite of hot is cold, the opposite of tall is",
	"Monday, Tuesday, Wednesday,",
	"git commit -m",
}
