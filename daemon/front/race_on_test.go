//go:build race

package front

const raced = true
