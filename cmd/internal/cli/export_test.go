package cli

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// httpget is "httpget URL [USER:PASSWORD]": prints the body, or the status on standard error.
func httpget() {
	request, err := http.NewRequest(http.MethodGet, os.Args[1], nil)
	if err == nil && len(os.Args) > 2 {
		user, password, _ := strings.Cut(os.Args[2], ":")
		request.SetBasicAuth(user, password)
	}
	var response *http.Response
	if err == nil {
		response, err = http.DefaultClient.Do(request)
	}
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", os.Args[1], response.Status)
	}
	if err == nil {
		_, err = io.Copy(os.Stdout, response.Body)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
