Register-ArgumentCompleter -Native -CommandName cnllm -ScriptBlock {
    param($word, $command, $cursor)
    $length = [Math]::Min($cursor - $command.Extent.StartOffset, $command.Extent.Text.Length)
    $env:_CNLLM_COMPLETE = 'powershell_complete'
    $env:COMP_WORDS = $command.Extent.Text.Substring(0, $length)
    $env:COMP_WORD = $word
    try {
        cnllm | ForEach-Object {
            $value, $help = $_ -split "`t", 2
            if (-not $help) { $help = $value }
            [System.Management.Automation.CompletionResult]::new($value, $value, 'ParameterValue', $help)
        }
    } finally {
        Remove-Item Env:_CNLLM_COMPLETE, Env:COMP_WORDS, Env:COMP_WORD
    }
}
