package lab

// ForTests is the mark that a package's TestMain hands to Isolate.
const ForTests = "FLOWTALLY_TEST_ISOLATED"
