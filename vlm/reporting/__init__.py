"""What a person looks at: sample sheets, charts and the HTML page. No torch in here."""
