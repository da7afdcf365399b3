"""HTTP: routes that parse, ask the service, and reply. No rule of cohorts is decided here."""
