package links_test

import (
	"context"
	"fmt"
	"log"

	"github.com/flowtally/flowtally/xdp/links"
)

// Print every interface that appears, disappears or changes.
func ExampleWatch() {
	events, err := links.Watch(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for e := range events {
		fmt.Println(e.Kind, e.Name)
	}
}
