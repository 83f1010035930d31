"""The controller's decisions: pure functions from the image and a request to records and a response."""
