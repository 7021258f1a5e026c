package links_test

import (
	"context"
	"fmt"
	"log"

	"github.com/flowtally/flowtally/xdp/links"
)

// Interfaces that come, go and change their names.
func ExampleWatch() {
	events, err := links.Watch(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for e := range events {
		fmt.Println(e.Kind, e.Name)
	}
}
