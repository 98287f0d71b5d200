// Decode and encode each example of the document with the types of the SDK, and print what became of it.
package main

import (
	"encoding/json"
	"fmt"
	"os"
)

type example struct {
	Schema  string          `json:"schema"`
	Example json.RawMessage `json:"example"`
}

func main() {
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	var examples []example
	if err := json.Unmarshal(text, &examples); err != nil {
		panic(err)
	}
	for _, one := range examples {
		value := types[one.Schema]()
		if err := json.Unmarshal(one.Example, value); err != nil {
			panic(fmt.Errorf("%s: %w", one.Schema, err))
		}
		encoded, err := json.Marshal(value)
		if err != nil {
			panic(fmt.Errorf("%s: %w", one.Schema, err))
		}
		fmt.Println(string(encoded))
	}
}
