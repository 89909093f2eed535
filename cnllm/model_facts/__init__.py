"""Say about models what listings, tables and pages show: capabilities, known issues, differences."""
